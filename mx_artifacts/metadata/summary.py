"""The summary row: the short form of a record that a store keeps separately, for listings."""

from __future__ import annotations

from dataclasses import dataclass

from mx_artifacts.core.identity import AnySourceType, SourceIdentity, SourceType
from mx_artifacts.core.sources import (
    SourceRef,
    WorkerRecord,
    layout_signature_of,
    training_step_of,
)


@dataclass(frozen=True)
class SummaryRow(SourceRef):
    """One worker in a listing. Nothing in it is taken from the tables of the whole record."""

    source_type: AnySourceType = SourceType.WEIGHTS
    version: str = ""
    """Opaque; only the store that returned the row can read it. It changes with every change of
    the record, so that `mark_stale` and `delete` can be refused when the row is out of date."""


def summary_of(
    mx_source_id: str, worker_id: str, identity: SourceIdentity, record: WorkerRecord, version: str
) -> SummaryRow:
    """Return the row of a whole record."""
    return SummaryRow(
        mx_source_id=mx_source_id,
        worker_id=worker_id,
        model_name=identity.model_name,
        worker_rank=record.worker_rank,
        accelerator=record.accelerator,
        updated_at_ms=record.updated_at_ms,
        status=record.status,
        topology=record.topology,
        source_load=record.source_load,
        training_step=training_step_of(identity),
        layout_signature=layout_signature_of(identity),
        source_type=identity.mx_source_type,
        version=version,
    )
