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


@dataclass(frozen=True)
class SourceQuery:
    """Filters of ListSources; None means no filter."""

    mx_source_id: str | None = None
    status: SourceStatus | None = None
    model_name: str | None = None
    worker_rank: int | None = None
    min_training_step: int | None = None
    min_updated_at_ms: int | None = None
    limit: int | None = None
