"""Rules about records that every store and every reader share."""

from __future__ import annotations

import pytest

from mx_artifacts.core.identity import SourceIdentity
from mx_artifacts.core.sources import (
    SourceRef,
    SourceStatus,
    layout_signature_of,
    newest_first,
    status_at,
    supersedes,
    training_step_of,
)

READY, STALE, INITIALIZING = SourceStatus.READY, SourceStatus.STALE, SourceStatus.INITIALIZING


@pytest.mark.parametrize("status", list(SourceStatus))
def test_only_a_ready_record_becomes_stale_by_silence(status: SourceStatus) -> None:
    assert status_at(status, 99, 100) is (STALE if status is READY else status)
    assert status_at(status, 100, 100) is status
    assert status_at(status, 0, None) is status


@pytest.mark.parametrize(
    ("status", "at_ms", "stored", "replaces"),
    [
        (READY, 101, STALE, True),
        (READY, 99, READY, False),
        (STALE, 99, READY, False),
        # Of the same millisecond: the reaper's mark stays, whichever comes last.
        (READY, 100, STALE, False),
        (STALE, 100, STALE, True),
        (STALE, 100, READY, True),
        (READY, 100, INITIALIZING, True),
    ],
)
def test_the_newer_update_wins_and_stale_wins_a_draw(
    status: SourceStatus, at_ms: int, stored: SourceStatus, replaces: bool
) -> None:
    assert supersedes(status, at_ms, stored, 100) is replaces


def test_rows_are_ordered_by_time_then_by_ids() -> None:
    rows = [
        SourceRef("b", "1", "m", 0, updated_at_ms=5),
        SourceRef("a", "2", "m", 0, updated_at_ms=5),
        SourceRef("a", "1", "m", 0, updated_at_ms=5),
        SourceRef("z", "9", "m", 0, updated_at_ms=6),
    ]
    ordered = [(row.mx_source_id, row.worker_id) for row in sorted(rows, key=newest_first)]
    assert ordered == [("z", "9"), ("a", "1"), ("a", "2"), ("b", "1")]


@pytest.mark.parametrize(
    ("extras", "step"),
    [
        ({}, None),
        ({"training_step": "0"}, 0),
        ({"version": "7"}, 7),
        ({"training_step": "3", "version": "7"}, 3),
        ({"training_step": "x", "version": "7"}, None),
        ({"version": str((1 << 64) - 1)}, (1 << 64) - 1),
        ({"version": str(1 << 64)}, None),
        ({"version": "-1"}, None),
        ({"version": "1.5"}, None),
        ({"version": " 1"}, None),
        ({"version": "٣"}, None),
        ({"version": "9" * 5000}, None),
    ],
)
def test_a_training_step_is_a_number_that_the_wire_can_hold(
    extras: dict[str, str], step: int | None
) -> None:
    assert training_step_of(SourceIdentity(extra_parameters=extras)) == step


def test_an_empty_layout_signature_is_none() -> None:
    assert layout_signature_of(SourceIdentity(extra_parameters={"layout_signature": ""})) is None
    assert layout_signature_of(SourceIdentity(extra_parameters={"layout_signature": "x"})) == "x"
