"""Rules for rows that all record stores share: judge freshness, filter, order and cut."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import replace

from mx_artifacts.core.identity import SourceIdentity
from mx_artifacts.core.sources import SourceQuery, newest_first, status_at, training_step_of
from mx_artifacts.metadata.summary import SummaryRow


def source_may_pass(query: SourceQuery, identity: SourceIdentity) -> bool:
    """Return whether rows of a source of `identity` may pass the filters by model and step.

    A store that keeps one identity for all workers of a source need not read the rows of a source
    that cannot pass.
    """
    if query.model_name not in (None, identity.model_name):
        return False
    return _step_passes(training_step_of(identity), query.min_training_step)


def matching(rows: Iterable[SummaryRow], query: SourceQuery) -> list[SummaryRow]:
    """Return the rows that pass every filter but the limit, with the status that counts now.

    Freshness is judged before the status filter and both before the limit, so that a silent record
    never takes a live one's place.
    """
    passing = []
    for row in rows:
        status = status_at(row.status, row.updated_at_ms, query.fresh_since_ms)
        if query.status in (None, status) and _passes(row, query):
            passing.append(row if status is row.status else replace(row, status=status))
    return passing


def _passes(row: SummaryRow, query: SourceQuery) -> bool:
    """Return whether `row` passes every filter but status and limit."""
    return (
        query.mx_source_id in (None, row.mx_source_id)
        and query.model_name in (None, row.model_name)
        and query.worker_rank in (None, row.worker_rank)
        and (query.min_updated_at_ms is None or row.updated_at_ms >= query.min_updated_at_ms)
        and _step_passes(row.training_step, query.min_training_step)
    )


def _step_passes(step: int | None, minimum: int | None) -> bool:
    return minimum is None or (step is not None and step >= minimum)


def ordered(rows: list[SummaryRow], limit: int | None) -> list[SummaryRow]:
    """Return the rows newest first, `limit` at most; a limit of None or 0 is none."""
    if limit and limit < len(rows):
        return heapq.nsmallest(limit, rows, key=newest_first)
    return sorted(rows, key=newest_first)
