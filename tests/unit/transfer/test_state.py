"""What is reported to a transfer's state, and what its threads learn from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from mx_artifacts.bundle.spans import Span
from mx_artifacts.errors import LeaseExpiredError, NoFreeSlotError, PeerLostError
from mx_artifacts.observability.events import ignore_events
from mx_artifacts.runtime.clock import FakeClock
from mx_artifacts.transfer.base import Destination, ReadableSource, SourceAddress
from mx_artifacts.transfer.candidates import Candidates
from mx_artifacts.transfer.read_scheduler import ReadScheduler
from mx_artifacts.transfer.source_failures import SourceFailures
from mx_artifacts.transfer.state import TransferState
from mx_artifacts.transfer.timing import DEFAULT_TIMING

A = SourceAddress("a:1", "id")
SPANS = [Span(0, number * 100, 100) for number in range(2)]


class Sink:
    waits = False
    stopped = 0

    def destination_of(self, extent: Span) -> None:
        return None

    def damage(self, extent: Span, stored: Destination) -> str:
        return ""

    def write(self, extent: Span, stored: Destination) -> None: ...

    def keep_until(self, is_done: Callable[[], bool]) -> None: ...

    def stop(self) -> None:
        self.stopped += 1


class Source:
    address = A
    is_complete = True

    def __init__(self, *, is_detached: bool = False) -> None:
        self.is_detached = is_detached

    def has(self, extent: Span) -> bool:
        return True

    def batch_of(self, first: Span, waiting: Sequence[Span]) -> list[Span]:
        return [first]


def source(*, is_detached: bool = False) -> ReadableSource[Span]:
    return Source(is_detached=is_detached)  # type: ignore[return-value]


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def state(sink: Sink) -> TransferState[Span]:
    clock = FakeClock()
    return TransferState(
        ReadScheduler(SPANS, clock),
        Candidates(clock, DEFAULT_TIMING),
        SourceFailures(ignore_events),
        sink,
    )


def test_a_failed_source_is_counted_once_and_read_from_no_more(
    state: TransferState[Span],
) -> None:
    failed = source()
    state.source_opened(failed)
    for _ in range(3):
        state.source_failed(failed, PeerLostError("gone"))
    assert state.scheduler.sources() == []
    assert state.candidates.lost_count == 1
    assert not state.candidates.has_waiting


def test_a_source_that_ended_our_session_is_opened_again_once(state: TransferState[Span]) -> None:
    for attempt in (source(is_detached=True), source()):
        state.source_opened(attempt)
        state.source_failed(attempt, LeaseExpiredError("it heard nothing of us"))
        if attempt.is_detached:
            assert state.candidates.take() == A
    assert state.candidates.take() is None
    assert state.candidates.lost_count == 1


def test_a_source_that_delivered_is_opened_again_each_time(state: TransferState[Span]) -> None:
    for _ in range(3):
        attempt = source(is_detached=True)
        state.source_opened(attempt)
        state.scheduler.record_read(attempt, SPANS[0], 1.0)
        state.source_failed(attempt, PeerLostError("gone"))
        assert state.candidates.take() == A
    assert state.candidates.lost_count == 0


def test_a_busy_source_has_not_failed(state: TransferState[Span]) -> None:
    state.source_refused(A, NoFreeSlotError("full"))
    assert state.candidates.has_busy
    assert state.failures.by_endpoint == {}
    state.source_refused(A, PeerLostError("gone"))
    assert "a:1" in state.failures.by_endpoint


def test_the_first_error_ends_the_transfer_and_everything_in_it(
    state: TransferState[Span], sink: Sink
) -> None:
    first = RuntimeError("first")
    state.fail(first)
    state.fail(RuntimeError("second"))
    assert state.is_stopped
    assert state.scheduler.is_over
    assert sink.stopped
    with pytest.raises(RuntimeError) as caught:
        state.wait_outcome(0)
    assert caught.value is first


def test_an_outcome_without_an_error_is_success_only_if_every_extent_was_written(
    state: TransferState[Span],
) -> None:
    state.readers_ended()
    assert not state.wait_outcome(0)
    for span in SPANS:
        state.scheduler.finished(span)
    assert state.wait_outcome(0)


def test_starving_raises_what_the_sources_failed_by(state: TransferState[Span]) -> None:
    state.source_refused(A, PeerLostError("gone"))
    state.starved("; 1 are left that lack the rest themselves")
    with pytest.raises(PeerLostError, match=r"a:1: gone \(0 of 2 parts.*lack the rest"):
        state.wait_outcome(0)


def test_a_report_wakes_threads_that_wait_for_a_change(state: TransferState[Span]) -> None:
    state.connecting_ended()
    state.wait_for_change(60)
    state.source_refused(A, PeerLostError("gone"))
    state.wait_for_change(60)
