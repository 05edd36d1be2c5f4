"""What every backend does alike with the records it has read: reference, filter and order them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from mx_artifacts.core.sources import (
    SourceQuery,
    SourceRef,
    StoredWorker,
    layout_signature_of,
    newest_first,
    status_at,
    training_step_of,
)


def ref_of(stored: StoredWorker) -> SourceRef:
    """Return the listing's row for a record."""
    record = stored.record
    return SourceRef(
        mx_source_id=stored.mx_source_id,
        worker_id=stored.worker_id,
        model_name=stored.identity.model_name,
        worker_rank=record.worker_rank,
        accelerator=record.accelerator,
        updated_at_ms=record.updated_at_ms,
        status=record.status,
        topology=record.topology,
        source_load=record.source_load,
        training_step=training_step_of(stored.identity),
        layout_signature=layout_signature_of(stored.identity),
    )


def _passes(ref: SourceRef, query: SourceQuery) -> bool:
    """Return whether `ref` passes every filter but the limit."""
    step = ref.training_step
    return (
        query.mx_source_id in (None, ref.mx_source_id)
        and query.status in (None, ref.status)
        and query.model_name in (None, ref.model_name)
        and query.worker_rank in (None, ref.worker_rank)
        and (query.min_updated_at_ms is None or ref.updated_at_ms >= query.min_updated_at_ms)
        and (
            query.min_training_step is None
            or (step is not None and step >= query.min_training_step)
        )
    )


def select(refs: Iterable[SourceRef], query: SourceQuery) -> list[SourceRef]:
    """Return the rows that pass, the newest first, `limit` at most.

    Freshness is judged before the status filter and both before the limit, so that a silent
    record never takes a live one's place.
    """
    judged = (
        replace(ref, status=status_at(ref.status, ref.updated_at_ms, query.fresh_since_ms))
        for ref in refs
    )
    passing = [ref for ref in judged if _passes(ref, query)]
    passing.sort(key=newest_first)
    return passing[: query.limit or None]
