"""A whole transfer of made-up pieces: what it returns, raises and leaves behind.

The parts have tests of their own; here they are put together by `receive`.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest

from mx_artifacts.errors import NoSpaceError, PeerLostError, ReadTimeoutError, RegistrationError
from mx_artifacts.memory.buffers import Buffer
from mx_artifacts.observability.catalogue import (
    SourceFailed,
    SpanReceived,
    TransferFinished,
    TransferStarted,
)
from mx_artifacts.observability.events import Event
from mx_artifacts.runtime.clock import SYSTEM_CLOCK, FakeClock
from mx_artifacts.runtime.deadline import Deadline
from mx_artifacts.transfer import pipeline
from mx_artifacts.transfer.base import Destination, SourceAddress
from mx_artifacts.transfer.engine import SourceSupply, TransferLimits, receive
from mx_artifacts.transfer.pipeline import Pipeline
from mx_artifacts.transfer.read_scheduler import ReadScheduler
from mx_artifacts.transfer.source_failures import SourceFailures
from mx_artifacts.transfer.timing import TransferTiming
from mx_artifacts.transport.base import LocalMemory, Region
from mx_artifacts.transport.inproc import InprocTransport
from tests.support.artifacts import new_agent
from tests.support.transfer_parts import (
    WAIT_SECONDS,
    Attempt,
    MadeUpSink,
    MadeUpSource,
    Piece,
    pieces,
)

TIMING = TransferTiming(read_slice=0.01, looks=(0.001,), stop=WAIT_SECONDS, refresh=0.001)


class World:
    def __init__(self, agent: InprocTransport) -> None:
        self.agent = agent
        self.sink = MadeUpSink()
        self.events: list[Event] = []
        self.failures = SourceFailures(self.events.append)
        self.found: list[SourceAddress] = []

    def receive(
        self,
        wanted: Sequence[Piece],
        *sources: MadeUpSource,
        first: MadeUpSource | None = None,
        **limits: Any,
    ) -> dict[str, int]:
        by_name = {source.name: source for source in sources}
        supply: SourceSupply[Piece] = SourceSupply(
            lambda address: by_name[address.endpoint],
            first=first,
            others=[source.address for source in sources],
            find=self._find,
        )
        values = {"timeout_seconds": WAIT_SECONDS, "max_inflight": 2, "timing": TIMING, **limits}
        transfer_limits = TransferLimits(**values)
        return receive(
            wanted,
            supply,
            self.sink,
            self.agent,
            transfer_limits,
            Deadline(transfer_limits.timeout_seconds, SYSTEM_CLOCK),
            self.failures,
            events=self.events.append,
            clock=SYSTEM_CLOCK,
            rng=random.Random(1),
        )

    def _find(self) -> Iterable[SourceAddress]:
        return self.found

    def check_nothing_is_left(self) -> None:
        assert not self.agent._regions, "every buffer is deregistered"
        names = {thread.name for thread in threading.enumerate()}
        assert not [name for name in names if name.startswith("mx-transfer")]


@pytest.fixture
def world() -> Iterator[World]:
    with closing(new_agent("target")) as agent:
        yield World(agent)


def written(wanted: Sequence[Piece]) -> dict[int, bytes]:
    return {piece.number: piece.content for piece in wanted}


def gone(attempt: Attempt) -> int:
    raise PeerLostError("gone")


def test_everything_arrives_and_the_result_names_the_sources(world: World) -> None:
    wanted = pieces(9)
    even = MadeUpSource("even:1", has_numbers={0, 2, 4, 6, 8})
    odd = MadeUpSource("odd:1", has_numbers={1, 3, 5, 7})
    assert world.receive(wanted, odd, first=even) == {"even:1": 50, "odd:1": 40}
    assert world.sink.written == written(wanted)
    assert world.events[0] == TransferStarted(90, 9)
    assert world.events[1:-1] == [SpanReceived(10)] * 9
    assert world.events[-1] == TransferFinished(90, 9)
    assert even.is_closed.is_set()
    assert odd.is_closed.is_set()
    world.check_nothing_is_left()


def test_an_empty_transfer_calls_no_source(world: World) -> None:
    source = MadeUpSource()
    assert world.receive([], source) == {}
    assert source.log == []
    assert world.events == [TransferStarted(0, 0), TransferFinished(0, 0)]


def test_missing_parts_of_a_failed_source_come_from_another_and_its_failure_is_kept(
    world: World,
) -> None:
    wanted = pieces(4)
    good = MadeUpSource("good:1", has_numbers=set())

    def fail(attempt: Attempt) -> int:
        good.has_numbers = None
        raise PeerLostError("gone")

    bad = MadeUpSource("bad:1", script=fail, batch=4)
    assert world.receive(wanted, good, first=bad, max_inflight=1) == {"good:1": 40}
    assert world.sink.written == written(wanted)
    assert world.failures.by_endpoint.keys() == {"bad:1"}


def test_the_error_of_a_source_that_recovered_is_forgotten(world: World) -> None:
    attempts: list[int] = []

    def script(attempt: Attempt) -> int:
        attempts.append(attempt.piece.number)
        if len(attempts) == 1:
            raise PeerLostError("gone")
        return attempt.deliver()

    first, again = MadeUpSource("a:1", script=script), MadeUpSource("a:1", script=script)
    world.found = [again.address]
    timing = TransferTiming(read_slice=0.01, looks=(0.001,), first_retry=0.0, stop=WAIT_SECONDS)
    # `others` has its address too, which is known already and not opened a second time.
    world.receive(pieces(2), again, first=first, timing=timing, source_wait_seconds=WAIT_SECONDS)
    assert [event for event in world.events if isinstance(event, SourceFailed)]
    assert world.failures.by_endpoint == {}


def test_where_no_source_is_left_its_own_error_is_raised_and_nothing_is_left(world: World) -> None:
    source = MadeUpSource(script=gone)
    with pytest.raises(PeerLostError, match=r"a:1: gone \(0 of 3 parts"):
        world.receive(pieces(3), first=source)
    assert source.is_closed.is_set()
    assert world.sink.stopped.is_set()
    assert world.events[-1] != TransferFinished(30, 3)
    world.check_nothing_is_left()


def test_an_error_of_the_sink_ends_all_threads_before_it_is_raised(world: World) -> None:
    error = NoSpaceError("full")

    def refuse(_piece: Piece) -> None:
        raise error

    world.sink.on_write = refuse
    source = MadeUpSource()
    with pytest.raises(NoSpaceError) as caught:
        world.receive(pieces(20), first=source, max_inflight=4)
    assert caught.value is error
    assert source.is_closed.is_set()
    world.check_nothing_is_left()


def test_a_thread_that_does_not_end_is_hung_up_on_and_ends_before_its_source_is_closed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only then: a lease that is given back in an orderly way is better."""
    waits = [0.0, WAIT_SECONDS]
    have_ended: list[bool] = []
    close = Pipeline.close

    def close_in_time(pipeline: Pipeline[Piece], timeout_seconds: float) -> bool:
        assert not source.is_closed.is_set()
        have_ended.append(close(pipeline, waits.pop(0)))
        return have_ended[-1]

    monkeypatch.setattr(Pipeline, "close", close_in_time)
    hangs = threading.Event()

    def hang(attempt: Attempt) -> int:
        if attempt.piece.number == 0:
            hangs.set()
            assert source.is_hung_up.wait(WAIT_SECONDS)
            raise PeerLostError("hung up")
        assert hangs.wait(WAIT_SECONDS)
        raise RegistrationError("no memory here")

    source = MadeUpSource(script=hang)
    with pytest.raises(RegistrationError):
        world.receive(pieces(2), first=source)
    assert have_ended == [False, True]
    assert source.is_closed.is_set()
    assert world.failures.by_endpoint == {}, "it is not the source's fault"


def test_where_all_extents_have_a_destination_no_buffer_is_made(world: World) -> None:
    buffer = Buffer(30)
    region = world.agent.register(buffer.view)
    wanted = pieces(3)
    for piece in wanted:
        at = 10 * piece.number
        world.sink.destinations[piece.number] = Destination(region, at, buffer.view[at : at + 10])
    regions: list[int] = []

    def script(attempt: Attempt) -> int:
        regions.append(len(world.agent._regions))
        return attempt.deliver()

    world.receive(wanted, first=MadeUpSource(script=script))
    assert regions == [1, 1, 1]
    assert bytes(buffer.view) == b"".join(piece.content for piece in wanted)


class FullAgent(InprocTransport):
    def register(self, memory: LocalMemory) -> Region:
        raise RegistrationError("no more memory may be locked")


def test_without_memory_for_buffers_no_source_is_asked() -> None:
    source = MadeUpSource()
    with closing(FullAgent("full target")) as agent, pytest.raises(RegistrationError):
        World(agent).receive(pieces(1), first=source)
    assert source.log == []


def test_a_deadline_that_has_passed_ends_it(world: World) -> None:
    clock = FakeClock()
    deadline = Deadline(5.0, clock)
    clock.advance(6.0)
    source = MadeUpSource(has_numbers=set())
    supply: SourceSupply[Piece] = SourceSupply(lambda _address: source, first=source)
    limits = TransferLimits(5.0, 1, timing=TIMING)
    with pytest.raises(ReadTimeoutError, match=r"5 s were not enough .*\(0 of 1 parts"):
        receive(
            pieces(1),
            supply,
            world.sink,
            world.agent,
            limits,
            deadline,
            world.failures,
            events=world.events.append,
            clock=clock,
            rng=random.Random(1),
        )
    world.check_nothing_is_left()


def test_a_target_that_serves_on_says_so_and_reads_one_extent_at_a_time_from_each(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    found_nothing = threading.Event()
    take = ReadScheduler.take

    def look(scheduler: ReadScheduler[Piece], timeout_seconds: float) -> object:
        work = take(scheduler, timeout_seconds)
        if work is None:
            found_nothing.set()
        return work

    monkeypatch.setattr(ReadScheduler, "take", look)
    reading = threading.Semaphore(1)

    def script(attempt: Attempt) -> int:
        assert reading.acquire(blocking=False), "two read from one source"
        found_nothing.clear()
        try:
            assert found_nothing.wait(WAIT_SECONDS), "another thread asked meanwhile"
            return attempt.deliver()
        finally:
            reading.release()

    source = MadeUpSource(script=script)
    monkeypatch.setattr(pipeline, "thread_count", lambda: 2)
    world.receive(pieces(5), first=source, serves_on=True)
    assert source.log[0] == "open, serves on: True"


@pytest.mark.parametrize("count", [0, -1])
def test_a_transfer_needs_at_least_one_extent_in_flight(count: int) -> None:
    with pytest.raises(ValueError, match="in flight"):
        TransferLimits(1.0, count)
