"""Which addresses a transfer opens next."""

from __future__ import annotations

from mx_artifacts.errors import ManifestInvalidError, PeerLostError
from mx_artifacts.runtime.clock import FakeClock
from mx_artifacts.transfer.base import SourceAddress
from mx_artifacts.transfer.candidates import Candidates
from mx_artifacts.transfer.timing import TransferTiming

A, B = SourceAddress("a:1", "id"), SourceAddress("b:1", "id")


def candidates() -> tuple[Candidates, FakeClock]:
    clock = FakeClock()
    return Candidates(clock, TransferTiming(first_retry=1.0, last_retry=3.0)), clock


def test_an_address_is_offered_once() -> None:
    found, _ = candidates()
    found.offer([A, B, A])
    found.offer([B])
    assert (found.take(), found.take(), found.take()) == (A, B, None)


def test_an_address_that_is_open_already_is_not_offered() -> None:
    found, _ = candidates()
    found.know(A)
    found.offer([A])
    assert not found.has_waiting


def test_a_busy_source_waits_for_the_next_look() -> None:
    found, _ = candidates()
    found.note_busy(A)
    assert (found.has_busy, found.take()) == (True, None)
    found.retry_busy()
    assert (found.has_busy, found.take()) == (False, A)


def test_a_lost_source_is_tried_again_after_a_pause_that_doubles_up_to_a_bound() -> None:
    found, clock = candidates()
    found.offer([A])
    assert found.take() == A
    for pause in (1.0, 2.0, 3.0, 3.0):
        found.note_lost(A, PeerLostError("gone"))
        clock.advance(pause - 0.1)
        found.offer([A])
        assert found.take() is None
        clock.advance(0.1)
        found.offer([A])
        assert found.take() == A
        found.offer([A])
        assert found.take() is None, "not again until it is lost again"
    assert found.lost_count == 1


def test_a_source_of_wrong_data_is_never_tried_again() -> None:
    found, clock = candidates()
    found.offer([A])
    found.take()
    found.note_lost(A, ManifestInvalidError("forged"))
    clock.advance(1e9)
    found.offer([A])
    assert found.take() is None


def test_a_source_can_be_put_before_and_behind_the_others() -> None:
    found, _ = candidates()
    found.offer([A])
    found.put_first(B)
    found.put_last(B)
    assert [found.take() for _ in range(3)] == [B, A, B]
