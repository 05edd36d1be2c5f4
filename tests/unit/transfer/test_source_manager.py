"""Which sources are opened when, when others are looked for, and when a transfer gives up.

The time is the test's: what is asked for sources moves it on.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from mx_artifacts.errors import (
    BackendUnavailableError,
    MxArtifactsError,
    NoFreeSlotError,
    PeerLostError,
    TransferFailedError,
    TransportError,
)
from mx_artifacts.observability.events import ignore_events
from mx_artifacts.runtime.clock import FakeClock
from mx_artifacts.transfer.base import SourceAddress
from mx_artifacts.transfer.candidates import Candidates
from mx_artifacts.transfer.read_scheduler import ReadScheduler
from mx_artifacts.transfer.source_failures import SourceFailures
from mx_artifacts.transfer.source_manager import MAX_FAILURES, MAX_SOURCES, SourceManager
from mx_artifacts.transfer.state import TransferState
from mx_artifacts.transfer.timing import TransferTiming
from tests.support.transfer_parts import WAIT_SECONDS, MadeUpSink, MadeUpSource, Piece, pieces

LOOK_SECONDS = 0.001
"""The least that the manager waits for a report; each look moves the test's clock on by a second.
"""
PATIENCE_SECONDS = 10.0
STUCK_SECONDS = 30.0


class World:
    """A manager, and sources by their endpoint; one that is not listed here takes no connection."""

    def __init__(self, *sources: MadeUpSource, **options: Any) -> None:
        self.clock = FakeClock()
        self.timing = TransferTiming(
            looks=(LOOK_SECONDS,), calm=1.0, stuck=STUCK_SECONDS, busy=20.0, stale=1.0, refresh=3600
        )
        self.sources = {source.name: source for source in sources}
        self.connected: list[str] = []
        self.state: TransferState[Piece] = TransferState(
            ReadScheduler(pieces(2), self.clock, timing=self.timing),
            Candidates(self.clock, self.timing),
            SourceFailures(ignore_events),
            MadeUpSink(),
        )
        self.found: Callable[[], Iterable[SourceAddress]] = lambda: ()
        self.looks = 0
        self._changed = threading.Condition()
        self.manager: SourceManager[Piece] = SourceManager(
            self.state,
            self._connect,
            self._find,
            self.clock,
            self.timing,
            serves_on=options.get("serves_on", False),
            patience_seconds=options.get("patience_seconds", PATIENCE_SECONDS),
        )

    def _connect(self, address: SourceAddress) -> MadeUpSource:
        self.connected.append(address.endpoint)
        return self.sources[address.endpoint]

    def _find(self) -> Iterable[SourceAddress]:
        self.clock.advance(1.0)
        with self._changed:
            self.looks += 1
            self._changed.notify_all()
        return self.found()

    def start(self, first: MadeUpSource | None = None, *others: str) -> None:
        self.manager.start(first, map(address, others))

    def wait_looks(self, count: int) -> None:
        """Wait until sources were looked for so often."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.looks >= count, WAIT_SECONDS)

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so. The manager goes round meanwhile."""
        pause = threading.Event()
        for _ in range(int(WAIT_SECONDS / LOOK_SECONDS)):
            if is_so():
                return
            pause.wait(LOOK_SECONDS)
        raise AssertionError("it did not come to that")

    def error(self) -> BaseException:
        """Wait for the end of the transfer, and return the error that it ended by."""
        with pytest.raises(MxArtifactsError) as caught:
            self.state.wait_outcome(WAIT_SECONDS)
        return caught.value

    def close(self) -> None:
        self.manager.close()
        self.manager._thread.join(WAIT_SECONDS)
        assert not self.manager._thread.is_alive()


def address(endpoint: str) -> SourceAddress:
    return SourceAddress(endpoint, "id")


def lacking(name: str) -> MadeUpSource:
    """Return a source that has none of what is wanted, and receives no more."""
    return MadeUpSource(name, has_numbers={99})


@pytest.fixture
def new_world() -> Iterator[Any]:
    worlds: list[World] = []

    def make(*sources: MadeUpSource, **options: Any) -> World:
        worlds.append(World(*sources, **options))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


# --- opening -------------------------------------------------------------------------------------


def test_no_more_sources_are_opened_than_gain_something(new_world: Any) -> None:
    sources = [MadeUpSource(f"s{number}:1") for number in range(MAX_SOURCES + 2)]
    world = new_world(*sources)
    first, *others = sources
    world.start(first, *(source.name for source in others))
    world.wait_until(lambda: len(world.state.scheduler.sources()) == MAX_SOURCES)
    world.wait_until(lambda: world.manager._connector.count == 0)
    assert world.connected == [source.name for source in others[: MAX_SOURCES - 1]]
    assert first.log == ["open, serves on: False"], "it is connected already"


def test_one_that_fails_makes_room_for_the_next(new_world: Any) -> None:
    sources = [MadeUpSource(f"s{number}:1") for number in range(MAX_SOURCES + 1)]
    world = new_world(*sources)
    world.start(None, *(source.name for source in sources))
    world.wait_until(lambda: len(world.state.scheduler.sources()) == MAX_SOURCES)
    world.state.source_failed(sources[0], PeerLostError("gone"))
    world.wait_until(lambda: sources[-1] in world.state.scheduler.sources())


def test_an_invalid_address_of_one_source_does_not_stop_the_others(new_world: Any) -> None:
    """A central server may name any address."""
    good = MadeUpSource("good:1")
    world = new_world(good)
    world.start(None, "not an address", "good:1")
    world.wait_until(lambda: world.state.scheduler.sources() == [good])
    error = world.state.failures.by_endpoint["not an address"]
    assert isinstance(error, TransportError)
    assert "'not an address' cannot be asked" in str(error)


# --- looking -------------------------------------------------------------------------------------


def test_a_transfer_without_sources_looks_for_some(new_world: Any) -> None:
    late = MadeUpSource("late:1")
    world = new_world(late)
    world.found = lambda: [address("late:1")] if world.looks == 3 else []
    world.start()
    world.wait_until(lambda: world.state.scheduler.sources() == [late])
    assert world.connected == ["late:1"]


def test_one_that_has_a_complete_source_leaves_the_central_server_in_peace(new_world: Any) -> None:
    source = MadeUpSource()
    world = new_world(source)
    world.start(source)
    world.wait_until(lambda: source in world.state.scheduler.sources())
    before = world.looks
    world.clock.advance(world.timing.calm / 2)
    rounds = _count_rounds(world)
    world.wait_until(lambda: next(rounds) > 50)
    assert world.looks == before, "too little time has passed"
    world.clock.advance(world.timing.calm)
    world.wait_looks(before + 1)


def _count_rounds(world: World) -> Iterator[int]:
    """Count how often the manager went round, at least, since this was called."""
    rounds = itertools.count()
    wait = world.state.wait_for_change
    state = {"rounds": 0}

    def counted(timeout_seconds: float) -> None:
        state["rounds"] = next(rounds)
        wait(timeout_seconds)

    world.state.wait_for_change = counted  # type: ignore[method-assign]
    while True:
        yield state["rounds"]


@pytest.mark.parametrize("error", [BackendUnavailableError("down"), ZeroDivisionError("a bug")])
def test_the_transfer_continues_if_the_central_server_cannot_be_asked(
    new_world: Any, error: Exception
) -> None:
    late = MadeUpSource("late:1")
    world = new_world(late)

    def find() -> list[SourceAddress]:
        if world.looks < 3:
            raise error
        return [address("late:1")]

    world.found = find
    world.start()
    world.wait_until(lambda: world.state.scheduler.sources() == [late])
    assert not world.state.is_stopped


# --- giving up -----------------------------------------------------------------------------------


def test_it_gives_up_when_its_patience_is_over_and_says_why(new_world: Any) -> None:
    cause = PeerLostError("gone")
    world = new_world(MadeUpSource("lost:1", open_error=cause))
    world.start(None, "lost:1")
    error = world.error()
    assert isinstance(error, PeerLostError)
    assert error.__cause__ is cause
    assert "lost:1" in str(error)
    assert "0 of 2 parts" in str(error)
    assert world.looks > PATIENCE_SECONDS, "a look each second"


def test_without_patience_one_look_is_enough(new_world: Any) -> None:
    world = new_world(patience_seconds=0.0)
    world.start()
    assert "no source has the missing parts" in str(world.error())
    assert world.looks == 1


def test_a_source_that_comes_in_time_ends_the_waiting(new_world: Any) -> None:
    source = MadeUpSource("late:1")
    world = new_world(source)
    world.found = lambda: [address("late:1")] if world.looks == PATIENCE_SECONDS - 1 else []
    world.start()
    world.wait_until(lambda: source in world.state.scheduler.sources())
    world.clock.advance(100 * PATIENCE_SECONDS)
    looks = world.looks
    world.wait_looks(looks + 3)
    assert not world.state.is_stopped


def test_after_very_many_failures_patience_is_over(new_world: Any) -> None:
    names = [f"s{number}:1" for number in range(MAX_FAILURES)]
    world = new_world(
        *(MadeUpSource(name, open_error=PeerLostError("gone")) for name in names),
        patience_seconds=10**6,
    )
    world.start(None, *names)
    error = world.error()
    assert isinstance(error, TransferFailedError)
    assert len(error.attempts) == MAX_FAILURES


def test_sources_that_lack_the_rest_are_waited_for_longer_and_counted(new_world: Any) -> None:
    """They may receive it themselves."""
    world = new_world(lacking("a:1"), lacking("b:1"), patience_seconds=0.0)
    world.start(None, "a:1", "b:1")
    assert "2 are left that lack the rest" in str(world.error())
    assert world.looks >= STUCK_SECONDS


def test_new_parts_at_a_source_prolong_the_wait(new_world: Any) -> None:
    source = lacking("a:1")
    world = new_world(source, patience_seconds=0.0)
    got_more = threading.Event()

    def find() -> Iterable[SourceAddress]:
        if world.looks == int(STUCK_SECONDS) - 5:
            world.state.availability_changed()
            got_more.set()
        return ()

    world.found = find
    world.start(None, "a:1")
    world.error()
    assert got_more.is_set()
    assert world.looks >= 2 * STUCK_SECONDS - 5


def test_a_source_that_is_being_opened_is_waited_for_whatever_the_patience(new_world: Any) -> None:
    may_open = threading.Event()
    source = MadeUpSource(on_open=lambda: may_open.wait(WAIT_SECONDS))
    world = new_world(source, patience_seconds=0.0)
    world.start(source)
    world.clock.advance(10**6)
    world.wait_looks(3)
    assert not world.state.is_stopped
    may_open.set()
    world.wait_until(lambda: source in world.state.scheduler.sources())


# --- busy sources --------------------------------------------------------------------------------


def test_a_busy_source_is_asked_again_at_each_look_and_not_given_up(new_world: Any) -> None:
    tries: list[int] = []

    def refuse() -> None:
        tries.append(world.looks)
        if len(tries) <= PATIENCE_SECONDS + 5:
            raise NoFreeSlotError("full")

    busy = MadeUpSource("busy:1", on_open=refuse)
    world = new_world(busy)
    world.start(None, "busy:1")
    world.clock.advance(1.0)  # the first look is due; each moves the clock on to the next
    world.wait_until(lambda: busy in world.state.scheduler.sources())
    assert world.state.failures.by_endpoint == {}


def test_a_target_that_serves_on_stops_saying_so_where_all_are_busy_for_long(
    new_world: Any,
) -> None:
    """Sources take few such targets at once, and those before it may be stuck."""
    busy = MadeUpSource("busy:1", open_error=NoFreeSlotError("full"))
    world = new_world(busy, serves_on=True)
    world.start(None, "busy:1")
    world.clock.advance(1.0)  # the first look is due; each moves the clock on to the next
    world.wait_until(lambda: "open, serves on: False" in busy.log)
    first = busy.log.index("open, serves on: False")
    assert set(busy.log[:first]) == {"open, serves on: True"}
    assert world.looks >= world.timing.busy


# --- making room ---------------------------------------------------------------------------------


def test_one_of_no_use_makes_room_where_nothing_moves_and_may_come_back(new_world: Any) -> None:
    useless = [lacking(f"u{number}:1") for number in range(MAX_SOURCES)]
    useful = MadeUpSource("useful:1")
    world = new_world(*useless, useful)
    world.start(None, *(source.name for source in useless), "useful:1")
    world.wait_until(lambda: useful in world.state.scheduler.sources())
    left = [source for source in useless if source.is_closed.is_set()]
    assert len(left) == 1
    assert left[0] not in world.state.scheduler.sources()
    assert world.state.failures.by_endpoint == {}, "it has not failed"
    assert world.state.candidates.take() == left[0].address


# --- the end -------------------------------------------------------------------------------------


def test_a_bug_ends_the_transfer(new_world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    world = new_world()
    monkeypatch.setattr(world.state.candidates, "retry_busy", lambda: 1 / 0)
    world.start()
    with pytest.raises(ZeroDivisionError):
        world.state.wait_outcome(WAIT_SECONDS)


def test_it_ends_with_the_last_extent(new_world: Any) -> None:
    source = MadeUpSource()
    world = new_world(source)
    world.start(source)
    for piece in pieces(2):
        world.state.scheduler.finished(piece)
    world.manager._thread.join(WAIT_SECONDS)
    assert not world.manager._thread.is_alive()
    assert world.state.wait_outcome(0)


def test_hanging_up_lets_calls_fail_and_closing_disconnects(new_world: Any) -> None:
    source = MadeUpSource()
    world = new_world(source)
    world.start(source)
    world.wait_until(lambda: source in world.state.scheduler.sources())
    world.manager.hang_up()
    assert source.is_hung_up.is_set()
    assert not source.is_closed.is_set()
    world.manager.close()
    assert source.is_closed.is_set()
