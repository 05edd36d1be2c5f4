"""The threads that read: what becomes of an extent when source, bytes, sink or time fail it.

Sources and sink are scripted, and the clock is the test's, so that nothing here waits for time.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from mx_artifacts.errors import (
    ChunkChecksumError,
    ManifestInvalidError,
    MxArtifactsError,
    NoFreeSlotError,
    NoSpaceError,
    PeerLostError,
    ReadTimeoutError,
    RegistrationError,
    TransportUnavailableError,
)
from mx_artifacts.memory.buffers import Buffer
from mx_artifacts.memory.pool import BufferPool
from mx_artifacts.observability.catalogue import SourceFailed, SpanReceived
from mx_artifacts.observability.events import Event
from mx_artifacts.runtime.clock import FakeClock
from mx_artifacts.runtime.deadline import Deadline
from mx_artifacts.runtime.rate_limit import RateLimit
from mx_artifacts.runtime.threads import WorkStopped
from mx_artifacts.transfer import pipeline as pipeline_module
from mx_artifacts.transfer.base import Destination
from mx_artifacts.transfer.candidates import Candidates
from mx_artifacts.transfer.pipeline import Pipeline, TransferContext
from mx_artifacts.transfer.read_scheduler import ReadScheduler
from mx_artifacts.transfer.source_failures import SourceFailures
from mx_artifacts.transfer.state import TransferState
from mx_artifacts.transfer.timing import TransferTiming
from tests.support.artifacts import new_agent
from tests.support.transfer_parts import (
    WAIT_SECONDS,
    Attempt,
    MadeUpRead,
    MadeUpSink,
    MadeUpSource,
    Piece,
    pieces,
)

TIMING = TransferTiming(read_slice=0.125, min_stall=1.0, stall_factor=8.0, stalled_read=0.5)
BUDGET_SECONDS = 60.0


class World:
    """A transfer of pieces by one thread, unless a test wants more."""

    def __init__(self, wanted: list[Piece], *sources: MadeUpSource, **options: Any) -> None:
        self.wanted = wanted
        self.agent = new_agent("target")
        self.clock = FakeClock()
        self.events: list[Event] = []
        self.sink = MadeUpSink()
        self.failures = SourceFailures(self.events.append)
        timing = options.get("timing", TIMING)
        scheduler = ReadScheduler(wanted, self.clock, timing=timing)
        self.state = TransferState(
            scheduler, Candidates(self.clock, timing), self.failures, self.sink
        )
        self.threads: int = options.get("threads", 1)
        self.pool = BufferPool(self.agent, self.threads, 10, spares=2 * self.threads)
        self.rate = options.get("rate") or RateLimit(None)
        self.context = TransferContext(
            state=self.state,
            sink=self.sink,
            pool=self.pool,
            deadline=Deadline(BUDGET_SECONDS, self.clock),
            rate=self.rate,
            rng=random.Random(1),
            clock=self.clock,
            timing=timing,
            events=self.events.append,
            max_corrupt_reads=2,
        )
        self.pipeline = Pipeline(self.context, self.threads)
        for source in sources:
            scheduler.add(source)

    def run(self) -> None:
        """Run the transfer; all threads have ended after it."""
        try:
            self.pipeline.run()
        finally:
            assert self.pipeline.close(WAIT_SECONDS)

    def close(self) -> None:
        self.pipeline.close(WAIT_SECONDS)
        self.pool.close()
        self.agent.close()

    def check_all_written(self) -> None:
        assert self.sink.written == {piece.number: piece.content for piece in self.wanted}


@pytest.fixture
def new_world() -> Iterator[Any]:
    worlds: list[World] = []

    def make(wanted: list[Piece], *sources: MadeUpSource, **options: Any) -> World:
        worlds.append(World(wanted, *sources, **options))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


def failing(error: Exception) -> Any:
    def script(attempt: Attempt) -> int:
        raise error

    return script


# --- all goes well -------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("batch", [1, 3])
def test_every_extent_is_written_once(new_world: Any, threads: int, batch: int) -> None:
    world = new_world(pieces(20), MadeUpSource(batch=batch), threads=threads)
    world.run()
    world.check_all_written()
    assert world.events == [SpanReceived(10)] * 20
    assert world.state.wait_outcome(0)


def test_leases_are_given_back_once_with_the_last_extent_of_a_batch(new_world: Any) -> None:
    source = MadeUpSource(batch=2)
    new_world(pieces(3), source).run()
    assert source.log == ["lend from 0", "release", "back", "lend from 2", "release", "back"]


def test_an_extent_with_a_destination_is_read_where_it_stays(new_world: Any) -> None:
    world = new_world(pieces(2), MadeUpSource())
    buffer = Buffer(100)
    region = world.agent.register(buffer.view)
    world.sink.destinations[1] = Destination(region, 50, buffer.view[50:60])
    world.run()
    world.check_all_written()
    assert bytes(buffer.view[50:60]) == world.wanted[1].content
    assert not any(buffer.view[:50])


# --- damaged bytes -------------------------------------------------------------------------------


def test_damaged_bytes_are_read_again_and_never_written(new_world: Any) -> None:
    def script(attempt: Attempt) -> int:
        return attempt.damage() if attempt.number < 2 else attempt.deliver()

    source = MadeUpSource(script=script)
    world = new_world(pieces(1), source)
    world.run()
    world.check_all_written()
    assert source.reads == [0, 0, 0]
    assert world.failures.by_endpoint == {}


def test_a_source_whose_bytes_stay_damaged_is_left_for_another_one(new_world: Any) -> None:
    bad = MadeUpSource("bad:1", script=Attempt.damage, batch=3)
    good = MadeUpSource("good:1", has_numbers={0})
    world = new_world(pieces(3), bad, good)
    good.has_numbers = set()

    def script(attempt: Attempt) -> int:
        if attempt.number == 2:
            good.has_numbers = None
        return attempt.damage()

    bad.script = script
    world.run()
    world.check_all_written()
    assert bad.reads == [0, 0, 0], "two repeats, and nothing else of its batch"
    assert sorted(good.reads) == [0, 1, 2]
    error = world.failures.by_endpoint["bad:1"]
    assert isinstance(error, ChunkChecksumError)
    assert "3 times" in str(error)
    assert "piece 0 is damaged" in str(error)
    assert world.state.candidates.lost_count == 1


def test_bytes_under_an_expired_lease_are_no_damage(new_world: Any) -> None:
    def script(attempt: Attempt) -> int:
        is_damaged = attempt.piece.number == 0 and attempt.number < 5
        return attempt.damage() if is_damaged else attempt.deliver()

    source = MadeUpSource(script=script, batch=2)
    source.holds = [False] * 5  # said when it is asked for the lease of the damaged bytes
    world = new_world(pieces(2), source)
    world.run()
    world.check_all_written()
    assert source.reads.count(0) == 6


# --- a source fails ------------------------------------------------------------------------------


def test_missing_parts_of_a_failed_source_are_read_from_another(new_world: Any) -> None:
    other = MadeUpSource("other:1", has_numbers=set())

    def script(attempt: Attempt) -> int:
        if attempt.piece.number == 2:
            other.has_numbers = None
            raise PeerLostError("gone")
        return attempt.deliver()

    lost = MadeUpSource("lost:1", script=script, batch=5)
    world = new_world(pieces(5), lost, other)
    world.run()
    world.check_all_written()
    assert lost.reads == [0, 1, 2]
    assert other.reads == [2, 3, 4], "what was given back keeps its order"
    assert world.state.scheduler.sources() == [other]
    assert world.failures.by_endpoint.keys() == {"lost:1"}
    (failed,) = [event for event in world.events if isinstance(event, SourceFailed)]
    assert failed.endpoint == "lost:1"


def test_a_source_that_ended_our_session_is_not_read_from(new_world: Any) -> None:
    gone = MadeUpSource("gone:1", session_error=PeerLostError("its session ended"))
    other = MadeUpSource("other:1", script=lambda attempt: attempt.deliver())
    world = new_world(pieces(2), gone, other)
    world.run()
    world.check_all_written()
    assert gone.reads == []


@pytest.mark.parametrize(
    "error",
    [
        RegistrationError("no memory"),
        TransportUnavailableError("no libraries"),
        ZeroDivisionError("a bug"),
    ],
)
def test_an_error_of_this_node_ends_the_transfer_and_no_source_is_given_up(
    new_world: Any, error: Exception
) -> None:
    world = new_world(pieces(2), MadeUpSource(script=failing(error)), MadeUpSource("other:1"))
    with pytest.raises(type(error)) as caught:
        world.run()
    assert caught.value is error
    assert world.failures.by_endpoint == {}


# --- the sink ------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [NoSpaceError("full"), ManifestInvalidError("no such entry")])
def test_an_error_of_the_sink_ends_the_transfer_and_no_source(
    new_world: Any, error: MxArtifactsError
) -> None:
    world = new_world(pieces(3), MadeUpSource())

    def refuse(_piece: Piece) -> None:
        raise error

    world.sink.on_write = refuse
    with pytest.raises(type(error)) as caught:
        world.run()
    assert caught.value is error
    assert world.sink.written == {}
    assert world.sink.stopped.is_set()
    assert world.failures.by_endpoint == {}


def test_a_sink_that_was_stopped_ends_threads_without_an_error_of_its_own(new_world: Any) -> None:
    world = new_world(pieces(3), MadeUpSource())
    first = NoSpaceError("full")

    def refuse(_piece: Piece) -> None:
        world.state.fail(first)
        raise WorkStopped

    world.sink.on_write = refuse
    with pytest.raises(NoSpaceError) as caught:
        world.run()
    assert caught.value is first


# --- time ----------------------------------------------------------------------------------------


def test_the_error_of_a_deadline_says_how_much_arrived(new_world: Any) -> None:
    def script(attempt: Attempt) -> int:
        if attempt.piece.number == 1:
            world.clock.advance(BUDGET_SECONDS)
        return attempt.deliver()

    world = new_world(pieces(3), MadeUpSource(script=script))
    with pytest.raises(
        ReadTimeoutError, match=r"60 s were not enough.*a:1 \(1 of 3 parts"
    ) as caught:
        world.run()
    assert "--timeout" in caught.value.hint()
    assert world.sink.written.keys() == {0}


def test_an_error_after_the_deadline_is_the_deadline_s_and_no_source_s(new_world: Any) -> None:
    """A call whose time was cut short fails, but the source is well."""

    def script(attempt: Attempt) -> int:
        world.clock.advance(BUDGET_SECONDS)
        raise PeerLostError("it did not answer in time")

    world = new_world(pieces(1), MadeUpSource(script=script))
    with pytest.raises(ReadTimeoutError, match="60 s were not enough") as caught:
        world.run()
    assert isinstance(caught.value.__cause__, PeerLostError)
    assert world.failures.by_endpoint == {}


def test_an_error_after_the_end_of_the_transfer_is_no_failure_of_a_source(new_world: Any) -> None:
    def script(attempt: Attempt) -> int:
        world.state.fail(NoSpaceError("full"))
        raise PeerLostError("its channel was closed")

    world = new_world(pieces(1), MadeUpSource(script=script))
    with pytest.raises(NoSpaceError):
        world.run()
    assert world.failures.by_endpoint == {}


def test_a_transfer_without_sources_ends_at_its_deadline(new_world: Any) -> None:
    world = new_world(pieces(1), timing=TransferTiming(read_slice=0.001, overtime=WAIT_SECONDS))
    world.clock.advance(BUDGET_SECONDS)
    with pytest.raises(ReadTimeoutError, match=r"from source any source \(0 of 1"):
        world.run()


# --- stalls --------------------------------------------------------------------------------------


class Stall:
    """A script whose read of a piece does not end; waiting for it takes the time it is said to."""

    def __init__(self) -> None:
        self.reads: list[MadeUpRead] = []
        self.waits = 0
        self.on_wait: Callable[[], object] = lambda: None

    def __call__(self, attempt: Attempt) -> int:
        read = MadeUpRead(self._waited)
        self.reads.append(read)
        attempt.pending.append(read)
        attempt.wait.finish(read)
        return attempt.deliver()

    def _waited(self) -> None:
        self.waits += 1
        self.on_wait()


def test_a_read_that_stalls_is_left_where_another_source_has_the_extent(new_world: Any) -> None:
    stall = Stall()
    slow = MadeUpSource("slow:1", script=stall)
    other = MadeUpSource("other:1", has_numbers=set())
    world = new_world(pieces(2), slow, other)
    stall.on_wait = lambda: setattr(other, "has_numbers", None)
    world.run()
    world.check_all_written()
    assert slow.reads == [0]
    assert sorted(other.reads) == [0, 1]
    assert stall.waits == 1 + TIMING.min_stall / TIMING.read_slice
    assert world.failures.by_endpoint == {}, "it is slow, and has not failed"
    assert slow in world.state.scheduler.sources()


def test_the_buffer_of_a_read_that_was_left_is_not_lent_until_that_ends(new_world: Any) -> None:
    stall = Stall()
    other = MadeUpSource("other:1", has_numbers=set())
    world = new_world(pieces(2), MadeUpSource("slow:1", script=stall), other)
    stall.on_wait = lambda: setattr(other, "has_numbers", None)
    used: list[int] = []

    def script(attempt: Attempt) -> int:
        used.append(attempt.into.region.addr)
        return attempt.deliver()

    other.script = script
    world.run()
    free = [world.pool.acquire(0.0) for _ in range(1)]
    with pytest.raises(NoFreeSlotError, match="1 in quarantine"):
        world.pool.acquire(0.0)
    stall.reads[0].is_done = True
    last = world.pool.acquire(0.0)
    assert last.region.addr not in used
    for buffer in (*free, last):
        world.pool.release(buffer)


def test_a_read_that_only_one_source_can_do_is_waited_for_while_it_answers(
    new_world: Any,
) -> None:
    stall = Stall()
    only = MadeUpSource(script=stall)
    world = new_world(pieces(1), only)

    def end_at_last() -> None:
        if stall.waits == 20:
            stall.reads[0].is_done = True

    stall.on_wait = end_at_last
    world.run()
    world.check_all_written()
    asked = only.log.count("asked whether it answers")
    assert asked == 19 // (TIMING.stalled_read / TIMING.read_slice)


def test_a_source_that_stalls_and_does_not_answer_has_failed(new_world: Any) -> None:
    error = PeerLostError("no answer")
    other = MadeUpSource("other:1", has_numbers=set())

    class Silent(MadeUpSource):
        def check_answers(self, timeout_seconds: float | None = None) -> None:
            other.has_numbers = None
            raise error

    stall = Stall()
    world = new_world(pieces(1), Silent("silent:1", script=stall), other)
    world.run()
    world.check_all_written()
    assert world.failures.by_endpoint == {"silent:1": error}
    assert stall.waits == TIMING.stalled_read / TIMING.read_slice


def test_a_source_that_is_left_by_others_is_left_by_all_its_readers(new_world: Any) -> None:
    """Another thread found that it failed: who waits for it need not find that out again."""
    stall = Stall()
    lost = MadeUpSource("lost:1", script=stall)
    other = MadeUpSource("other:1", has_numbers=set())
    world = new_world(pieces(1), lost, other)

    def fail() -> None:
        other.has_numbers = None
        world.state.source_failed(lost, PeerLostError("gone"))

    stall.on_wait = fail
    world.run()
    world.check_all_written()
    assert stall.waits == 1


def test_waiting_ends_with_the_deadline(new_world: Any) -> None:
    stall = Stall()
    world = new_world(pieces(1), MadeUpSource(script=stall))
    stall.on_wait = lambda: world.clock.advance(BUDGET_SECONDS / 2)
    with pytest.raises(ReadTimeoutError, match="60 s were not enough"):
        world.run()
    assert stall.waits == 2


def test_a_source_that_asks_to_wait_too_often_is_left(new_world: Any) -> None:
    """Busy: each of its refusals is a pause, and all of them together are a stall."""
    pauses: list[int] = []
    other = MadeUpSource("other:1", has_numbers=set())

    def script(attempt: Attempt) -> int:
        other.has_numbers = None
        while True:
            pauses.append(attempt.piece.number)
            attempt.wait.pause(0.0, waited_seconds=0.3)

    world = new_world(pieces(1), MadeUpSource("busy:1", script=script), other)
    world.run()
    world.check_all_written()
    assert len(pauses) == 4, "one second, and more than that"


def test_waiting_for_an_earlier_extent_is_not_counted(new_world: Any) -> None:
    def script(attempt: Attempt) -> int:
        for _ in range(3):
            attempt.wait.pause(0.0, waited_seconds=0.3)
        return attempt.deliver()

    source, other = MadeUpSource("busy:1", script=script, batch=3), MadeUpSource("other:1")
    world = new_world(pieces(3), source, other)
    world.run()
    world.check_all_written()
    assert (source.reads, other.reads) == ([0, 1, 2], [])


def test_a_call_lasts_as_long_as_it_pays_to_wait_for_its_answer(new_world: Any) -> None:
    other = MadeUpSource("other:1", has_numbers=set())
    remaining: list[float] = []

    def script(attempt: Attempt) -> int:
        remaining.append(attempt.wait.remaining())
        other.has_numbers = None
        remaining.append(attempt.wait.remaining())
        world.clock.advance(BUDGET_SECONDS - 1)
        remaining.append(attempt.wait.remaining())
        return attempt.deliver()

    world = new_world(pieces(1), MadeUpSource(script=script), other)
    world.run()
    assert remaining == [BUDGET_SECONDS, 2 * TIMING.min_stall, 1.0]


# --- reads into memory of the sink's -------------------------------------------------------------


class Direct:
    """A world whose only piece is read into memory of the sink's."""

    def __init__(self, new_world: Any, *sources: MadeUpSource) -> None:
        self.world: World = new_world(pieces(1), *sources)
        self.buffer = Buffer(10)
        region = self.world.agent.register(self.buffer.view)
        self.world.sink.destinations[0] = Destination(region, 0, self.buffer.view)


def test_a_stalled_read_into_the_sink_s_memory_is_not_left_for_another(new_world: Any) -> None:
    """Another source could only write to the same bytes."""
    stall = Stall()
    slow = MadeUpSource("slow:1", script=stall)
    other = MadeUpSource("other:1", has_numbers=set())
    direct = Direct(new_world, slow, other)

    def end_at_last() -> None:
        other.has_numbers = None
        if stall.waits == 50:
            stall.reads[0].is_done = True

    stall.on_wait = end_at_last
    direct.world.run()
    direct.world.check_all_written()
    assert other.reads == []


def test_a_failed_read_into_the_sink_s_memory_is_repeated_only_when_it_has_ended(
    new_world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_module, "_ENDING_POLL_SECONDS", 0.0)
    polls: list[bool] = []
    read = MadeUpRead()

    def done() -> bool:
        polls.append(read.is_done)
        read.is_done = len(polls) > 3
        return read.is_done

    read.done = done  # type: ignore[method-assign]
    other = MadeUpSource("other:1", has_numbers=set())

    def fail(attempt: Attempt) -> int:
        attempt.pending.append(read)
        other.has_numbers = None
        raise PeerLostError("gone")

    def deliver(attempt: Attempt) -> int:
        assert read.is_done, "the first read still writes to these bytes"
        return attempt.deliver()

    other.script = deliver
    direct = Direct(new_world, MadeUpSource("lost:1", script=fail), other)
    direct.world.run()
    direct.world.check_all_written()
    assert other.reads == [0]


def test_a_sink_keeps_memory_that_a_read_never_leaves(
    new_world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_module, "_ENDING_POLL_SECONDS", 0.0)
    read = MadeUpRead()

    def done() -> bool:
        direct.world.clock.advance(BUDGET_SECONDS / 2)
        return read.is_done

    read.done = done  # type: ignore[method-assign]

    def fail(attempt: Attempt) -> int:
        attempt.pending.append(read)
        raise PeerLostError("gone")

    direct = Direct(new_world, MadeUpSource("lost:1", script=fail))
    with pytest.raises(ReadTimeoutError, match="1 reads into memory"):
        direct.world.run()
    (is_done,) = direct.world.sink.kept
    assert not is_done()
    read.is_done = True
    assert is_done()


# --- threads -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("waits", "at_first"), [(False, 2), (True, 5)])
def test_as_many_threads_begin_as_there_are_cores_and_all_once_one_waits(
    new_world: Any, monkeypatch: pytest.MonkeyPatch, waits: bool, at_first: int
) -> None:
    monkeypatch.setattr(pipeline_module, "thread_count", lambda: 2)
    all_read = threading.Barrier(5, timeout=WAIT_SECONDS)

    def script(attempt: Attempt) -> int:
        attempt.wait.waits()
        all_read.wait()  # breaks unless five threads meet here
        return attempt.deliver()

    world = new_world(pieces(5), MadeUpSource(script=script), threads=5)
    world.sink.waits = waits
    begun: list[int] = []
    start = world.pipeline._start

    def counted(count: int) -> None:
        begun.append(count)
        start(count)

    world.pipeline._start = counted
    world.run()
    world.check_all_written()
    assert begun[0] == at_first


def test_close_returns_whether_a_thread_hangs(new_world: Any) -> None:
    reading, may_end = threading.Event(), threading.Event()

    def script(attempt: Attempt) -> int:
        reading.set()
        may_end.wait(WAIT_SECONDS)
        raise PeerLostError("hung up")

    world = new_world(pieces(1), MadeUpSource(script=script))
    running = threading.Thread(target=lambda: _ended(world))
    running.start()
    assert reading.wait(WAIT_SECONDS)
    assert not world.pipeline.close(0.0)
    assert world.sink.stopped.is_set()
    may_end.set()
    assert world.pipeline.close(WAIT_SECONDS)
    running.join(WAIT_SECONDS)
    assert world.failures.by_endpoint == {}


def _ended(world: World) -> None:
    with suppress(MxArtifactsError):
        world.pipeline.run()


# --- the rate ------------------------------------------------------------------------------------


class Rate(RateLimit):
    """Lets everything by at once, and notes it."""

    def __init__(self) -> None:
        super().__init__(None)
        self.log: list[tuple[str, int]] = []
        self.waits: list[float | None] = []

    def reserve(self, length_bytes: int, max_wait_seconds: float) -> float | None:
        self.log.append(("reserve", length_bytes))
        return self.waits.pop(0) if self.waits else 0.0

    def give_back(self, length_bytes: int) -> None:
        self.log.append(("give back", length_bytes))


def test_the_rate_that_a_compressed_extent_did_not_use_is_returned(new_world: Any) -> None:
    rate = Rate()

    def script(attempt: Attempt) -> int:
        attempt.deliver()
        return 4

    new_world(pieces(1), MadeUpSource(script=script), rate=rate).run()
    assert rate.log == [("reserve", 10), ("give back", 6)]


def test_bytes_that_were_carried_twice_count_twice(new_world: Any) -> None:
    rate = Rate()

    def script(attempt: Attempt) -> int:
        return attempt.damage() if attempt.number == 0 else attempt.deliver()

    new_world(pieces(1), MadeUpSource(script=script), rate=rate).run()
    assert rate.log == [("reserve", 10), ("give back", -10)]


def test_one_that_may_not_go_by_in_time_is_not_read(new_world: Any) -> None:
    rate = Rate()
    rate.waits = [None]
    source = MadeUpSource()
    world = new_world(pieces(1), source, rate=rate)
    pause = world.pipeline.pause
    paused: list[float] = []

    def pass_time(seconds: float) -> None:
        paused.append(seconds)
        world.clock.advance(seconds)
        pause(0.0)

    world.pipeline.pause = pass_time
    with pytest.raises(ReadTimeoutError, match="60 s"):
        world.run()
    assert paused == [BUDGET_SECONDS]
    assert source.reads == []
