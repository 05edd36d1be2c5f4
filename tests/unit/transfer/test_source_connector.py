"""Sources being opened: what is reported of each, and that each is closed in the end.

Each source has a thread of its own here; a test waits for what that reports, and for no time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from mx_artifacts.errors import (
    LeaseError,
    ManifestInvalidError,
    MxArtifactsError,
    NoFreeSlotError,
    PeerLostError,
    TransportError,
)
from mx_artifacts.observability.events import ignore_events
from mx_artifacts.runtime.clock import FakeClock
from mx_artifacts.transfer.base import SourceAddress
from mx_artifacts.transfer.candidates import Candidates
from mx_artifacts.transfer.read_scheduler import ReadScheduler
from mx_artifacts.transfer.source_connector import SourceConnector
from mx_artifacts.transfer.source_failures import SourceFailures
from mx_artifacts.transfer.state import TransferState
from mx_artifacts.transfer.timing import TransferTiming
from tests.support.transfer_parts import WAIT_SECONDS, MadeUpSink, MadeUpSource, Piece, pieces

TIMING = TransferTiming(refresh=0.0)


class State(TransferState[Piece]):
    """Notes what is reported; a test waits for it."""

    def __init__(self) -> None:
        clock = FakeClock()
        super().__init__(
            ReadScheduler(pieces(2), clock),
            Candidates(clock, TIMING),
            SourceFailures(ignore_events),
            MadeUpSink(),
        )
        self.log: list[str] = []
        self.errors: list[BaseException] = []
        self._noted = threading.Condition()

    def _note(self, what: str, error: BaseException | None = None) -> None:
        with self._noted:
            self.log.append(what)
            if error is not None:
                self.errors.append(error)
            self._noted.notify_all()

    def wait_for(self, *whats: str) -> None:
        """Wait until all of this was reported."""
        with self._noted:
            assert self._noted.wait_for(lambda: set(whats) <= set(self.log), WAIT_SECONDS), self.log

    def source_opened(self, source: object) -> None:
        super().source_opened(source)  # type: ignore[arg-type]
        self._note("opened")

    def source_refused(self, address: SourceAddress, error: MxArtifactsError) -> None:
        super().source_refused(address, error)
        self._note("refused", error)

    def source_failed(self, source: object, error: MxArtifactsError) -> None:
        super().source_failed(source, error)  # type: ignore[arg-type]
        self._note("failed", error)

    def availability_changed(self) -> None:
        super().availability_changed()
        self._note("has more")

    def connecting_ended(self) -> None:
        super().connecting_ended()
        self._note("connecting ended")

    def fail(self, error: BaseException) -> None:
        super().fail(error)
        self._note("transfer failed", error)


@pytest.fixture
def state() -> State:
    return State()


@pytest.fixture
def connector(state: State) -> Iterator[SourceConnector[Piece]]:
    connector: SourceConnector[Piece] = SourceConnector(state, TIMING, serves_on=True)
    yield connector
    connector.close()


def raising(error: BaseException) -> Callable[[], bool]:
    def act() -> bool:
        raise error

    return act


# --- opening -------------------------------------------------------------------------------------


def test_a_source_is_read_from_once_it_is_open(
    state: State, connector: SourceConnector[Piece]
) -> None:
    source = MadeUpSource()
    connector.begin(source)
    state.wait_for("connecting ended")
    assert state.log == ["opened", "connecting ended"]
    assert state.scheduler.sources() == [source]
    assert connector.count == 0
    assert source.log == ["open, serves on: True"]
    assert not source.is_closed.is_set()


def test_one_that_is_slow_to_open_delays_no_other(
    state: State, connector: SourceConnector[Piece]
) -> None:
    may_open = threading.Event()
    slow = MadeUpSource("slow:1", on_open=lambda: may_open.wait(WAIT_SECONDS))
    quick = MadeUpSource("quick:1")
    connector.begin(slow)
    connector.begin(quick)
    state.wait_for("connecting ended")
    assert state.scheduler.sources() == [quick]
    assert connector.count == 1
    may_open.set()


@pytest.mark.parametrize(
    "error", [PeerLostError("gone"), ManifestInvalidError("forged"), LeaseError("stopping")]
)
def test_one_that_cannot_be_opened_is_closed_and_reported_as_it_failed(
    state: State, connector: SourceConnector[Piece], error: MxArtifactsError
) -> None:
    source = MadeUpSource(open_error=error)
    connector.begin(source)
    state.wait_for("connecting ended")
    assert state.log == ["refused", "connecting ended"]
    assert state.errors == [error]
    assert source.is_closed.is_set()
    assert state.scheduler.sources() == []
    assert connector.count == 0


def test_a_busy_source_is_a_candidate_still(
    state: State, connector: SourceConnector[Piece]
) -> None:
    connector.begin(MadeUpSource(open_error=NoFreeSlotError("full")))
    state.wait_for("connecting ended")
    assert state.candidates.has_busy
    assert state.failures.by_endpoint == {}


def test_an_unknown_exception_counts_as_a_failure_of_the_source(
    state: State, connector: SourceConnector[Piece]
) -> None:
    """gRPC raises ValueError for a channel that was closed meanwhile."""
    connector.begin(MadeUpSource("odd:1", open_error=ValueError("Cannot invoke RPC")))
    state.wait_for("connecting ended")
    (error,) = state.errors
    assert isinstance(error, TransportError)
    assert "odd:1" in str(error)
    assert "Cannot invoke RPC" in str(error)
    assert not state.is_stopped


def test_a_source_is_seen_as_opening_until_it_is_open_or_refused(
    state: State, connector: SourceConnector[Piece]
) -> None:
    """Otherwise a transfer without other sources would give up in between."""
    counts: list[int] = []
    note = state._note

    def look(what: str, error: BaseException | None = None) -> None:
        counts.append(connector.count)
        note(what, error)

    state._note = look  # type: ignore[method-assign]
    for error in (None, PeerLostError("gone")):
        state.log.clear()
        connector.begin(MadeUpSource(open_error=error))
        state.wait_for("connecting ended")
    assert counts == [1, 0, 1, 0]


def test_a_bug_ends_the_transfer(state: State, connector: SourceConnector[Piece]) -> None:
    class Bug(BaseException):
        pass

    connector.begin(MadeUpSource(on_open=raising(Bug())))
    state.wait_for("transfer failed")
    assert state.is_stopped


# --- what it has by now --------------------------------------------------------------------------


def test_a_source_that_is_still_receiving_is_asked_until_it_has_everything(
    state: State, connector: SourceConnector[Piece]
) -> None:
    asked: list[int] = []

    def refresh() -> bool:
        asked.append(len(asked))
        if len(asked) == 2:
            raise NoFreeSlotError("too busy to answer")
        source.is_receiving = len(asked) < 4
        return len(asked) in (3, 4)

    source = MadeUpSource(is_receiving=True, on_refresh=refresh)
    connector.begin(source)
    _wait_for_end_of(connector, "mx-open")
    assert asked == [0, 1, 2, 3]
    assert state.log.count("has more") == 2
    assert "failed" not in state.log


def test_a_complete_source_is_not_asked(state: State, connector: SourceConnector[Piece]) -> None:
    connector.begin(MadeUpSource(on_refresh=raising(AssertionError())))
    _wait_for_end_of(connector, "mx-open")
    assert state.log == ["opened", "connecting ended"]


@pytest.mark.parametrize("error", [PeerLostError("gone"), ValueError("closed meanwhile")])
def test_one_that_does_not_say_what_it_has_has_failed(
    state: State, connector: SourceConnector[Piece], error: Exception
) -> None:
    connector.begin(MadeUpSource("a:1", is_receiving=True, on_refresh=raising(error)))
    state.wait_for("failed")
    (told,) = state.errors
    if isinstance(error, MxArtifactsError):
        assert told is error
    else:
        assert isinstance(told, TransportError)
        assert "a:1" in str(told)
    assert state.scheduler.sources() == []


def test_one_that_was_ended_here_has_not_failed(
    state: State, connector: SourceConnector[Piece]
) -> None:
    """Its channel is closed while it is asked, which is nobody's fault."""

    def refresh() -> bool:
        connector.end(source)
        raise ValueError("Cannot invoke RPC on closed channel!")

    source = MadeUpSource(is_receiving=True, on_refresh=refresh)
    connector.begin(source)
    _wait_for_end_of(connector, "mx-open")
    assert "failed" not in state.log
    assert source.is_closed.is_set()


# --- the end -------------------------------------------------------------------------------------


def test_all_open_sources_are_closed_at_the_end(
    state: State, connector: SourceConnector[Piece]
) -> None:
    sources = [MadeUpSource(f"{name}:1") for name in "abc"]
    for source in sources:
        connector.begin(source)
    _wait_for_end_of(connector, "mx-open")
    connector.close()
    connector.close()
    assert all(source.is_closed.is_set() for source in sources)
    assert all(source.is_hung_up.is_set() for source in sources)


def test_one_that_opens_after_the_end_is_closed_and_not_read_from(
    state: State, connector: SourceConnector[Piece]
) -> None:
    opening = threading.Event()
    source = MadeUpSource()

    def hang() -> None:
        opening.set()
        assert source.is_hung_up.wait(WAIT_SECONDS), "the end lets calls under way fail"

    source.on_open = hang
    connector.begin(source)
    assert opening.wait(WAIT_SECONDS)
    connector.close()
    state.wait_for("connecting ended")
    assert state.log == ["connecting ended"], "it was not refused: nobody wants it any more"
    assert source.is_closed.is_set()
    assert state.scheduler.sources() == []


def _wait_for_end_of(connector: SourceConnector[Piece], name: str) -> None:
    """Wait until every thread of this name has ended."""
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(WAIT_SECONDS)
            assert not thread.is_alive()
