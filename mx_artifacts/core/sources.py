"""What the central server knows of sources: records, references and queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType

from mx_artifacts.core.identity import SourceIdentity


class SourceStatus(IntEnum):
    """Life cycle of a worker's record; numbers are the wire's."""

    UNKNOWN = 0
    INITIALIZING = 1
    READY = 2
    STALE = 3


def _empty() -> Mapping[str, str]:
    return MappingProxyType({})


@dataclass(frozen=True)
class TensorDescriptor:
    """A registered tensor at a source: address, size [bytes], device index, dtype name."""

    name: str
    addr: int
    size: int
    device_id: int
    dtype: str


@dataclass(frozen=True)
class ArtifactSummary:
    """What discovery needs to know of an artifact."""

    artifact_id: str
    total_size: int
    file_count: int
    chunk_count: int
    node_rank: int = 0


@dataclass(frozen=True)
class WorkerRecord:
    """The wire's WorkerMetadata. `updated_at_ms` is Unix time in milliseconds.

    At most one of `nixl_metadata` (agent descriptor) and `transfer_engine_session_id` is set,
    and at most one of `tensors` and `artifact`.
    """

    worker_rank: int = 0
    status: SourceStatus = SourceStatus.INITIALIZING
    updated_at_ms: int = 0
    nixl_metadata: bytes | None = None
    transfer_engine_session_id: str | None = None
    metadata_endpoint: str = ""
    agent_name: str = ""
    worker_grpc_endpoint: str = ""
    accelerator: str = ""
    topology: Mapping[str, str] = field(default_factory=_empty)
    tensors: tuple[TensorDescriptor, ...] = ()
    artifact: ArtifactSummary | None = None
    source_load: float | None = None


@dataclass(frozen=True)
class StoredWorker:
    """A record with its keys."""

    mx_source_id: str
    worker_id: str
    identity: SourceIdentity
    record: WorkerRecord


@dataclass(frozen=True)
class PodIdentity:
    """The Kubernetes pod of a publisher; all three fields or none count."""

    name: str = ""
    uid: str = ""
    namespace: str = ""


@dataclass(frozen=True)
class SourceRef:
    """The wire's SourceInstanceRef: one worker in a listing, without tables."""

    mx_source_id: str
    worker_id: str
    model_name: str
    worker_rank: int
    accelerator: str = ""
    updated_at_ms: int = 0
    status: SourceStatus = SourceStatus.UNKNOWN  # the wire does not carry it
    topology: Mapping[str, str] = field(default_factory=_empty)
    source_load: float | None = None
    training_step: int | None = None
    layout_signature: str | None = None


def newest_first(ref: SourceRef) -> tuple[int, str, str]:
    """Order the rows of a listing: the last updated first, equally old ones by their ids."""
    return -ref.updated_at_ms, ref.mx_source_id, ref.worker_id


@dataclass(frozen=True)
class SourceQuery:
    """Filters of ListSources; None means no filter, and so does a limit of 0.

    A listing is newest first; `limit` cuts what has passed the other filters and is in order.

    A record without a training step does not pass `min_training_step`. A READY record that was
    last updated before `fresh_since_ms` counts, and is returned, as STALE: this one is the
    server's own and does not cross the wire.
    """

    mx_source_id: str | None = None
    status: SourceStatus | None = None
    model_name: str | None = None
    worker_rank: int | None = None
    min_training_step: int | None = None
    min_updated_at_ms: int | None = None
    limit: int | None = None
    fresh_since_ms: int | None = None


def status_at(status: SourceStatus, updated_at_ms: int, fresh_since_ms: int | None) -> SourceStatus:
    """Return the status that counts: READY without a heartbeat since `fresh_since_ms` is STALE."""
    silent = fresh_since_ms is not None and updated_at_ms < fresh_since_ms
    return SourceStatus.STALE if silent and status is SourceStatus.READY else status


def supersedes(
    status: SourceStatus, updated_at_ms: int, stored: SourceStatus, stored_at_ms: int
) -> bool:
    """Return whether an update replaces what is stored.

    The newer one wins; of two in the same millisecond STALE wins, since the reaper marks a record
    without moving its time and the heartbeat it judged by may still be under way.
    """
    if updated_at_ms == stored_at_ms:
        return stored is not SourceStatus.STALE or status is SourceStatus.STALE
    return updated_at_ms > stored_at_ms


def training_step_of(identity: SourceIdentity) -> int | None:
    """Return the step a refit source states in its extras: `training_step`, else `version`."""
    extras = identity.extra_parameters
    text = extras.get("training_step", extras.get("version", ""))
    is_uint64 = text.isascii() and text.isdecimal() and len(text) <= 20 and int(text) < 1 << 64
    return int(text) if is_uint64 else None


def layout_signature_of(identity: SourceIdentity) -> str | None:
    """Return the layout digest that a source states in its extras, if any."""
    return identity.extra_parameters.get("layout_signature") or None
