"""Records as Redis keeps them: the JSON forms that deployed ModelExpress servers read and write.

    mx:source:{id}              hash: __attributes__ -> identity; {worker_id} -> rank in decimal,
                                or the small JSON (other servers write that)
    mx:source:{id}:{worker_id}  hash: {rank} -> the whole record; status:{rank} -> the small JSON:
                                worker_rank, status, updated_at, accelerator, source_load

The small JSON is what a heartbeat writes; it overlays the record when it is at least as fresh.
64-bit sizes and addresses are strings, since Lua's and JavaScript's numbers hold 53 bits.

No I/O here. Every reader raises ValueError with what is wrong with the text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from mx_artifacts.core.identity import SourceIdentity, framework_of, source_type_of
from mx_artifacts.core.sources import (
    ArtifactSummary,
    SourceStatus,
    StoredWorker,
    TensorDescriptor,
    WorkerRecord,
)
from mx_artifacts.metadata.json_fields import JsonFields, read_object

ATTRIBUTES = "__attributes__"
"""Field of a source's index hash that holds the identity; never a worker id."""


def status_field(worker_rank: int) -> str:
    """Return the field of a worker's hash that holds the small JSON of a rank."""
    return f"status:{worker_rank}"


def _dump(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


# --- identity ------------------------------------------------------------------------------------


def attributes_to_json(identity: SourceIdentity) -> str:
    """Return the identity as `__attributes__` holds it: all fields, enums as numbers."""
    return _dump(identity.as_dict())


def attributes_from_json(text: bytes) -> SourceIdentity:
    """Return the identity; fields that are missing are empty, as in records of older servers."""
    fields = read_object(text, ATTRIBUTES)
    return SourceIdentity(
        mx_version=fields.text("mx_version"),
        mx_source_type=source_type_of(fields.integer("mx_source_type", bits=31)),
        model_name=fields.text("model_name"),
        backend_framework=framework_of(fields.integer("backend_framework", bits=31)),
        tensor_parallel_size=fields.integer("tensor_parallel_size"),
        pipeline_parallel_size=fields.integer("pipeline_parallel_size"),
        expert_parallel_size=fields.integer("expert_parallel_size"),
        dtype=fields.text("dtype"),
        quantization=fields.text("quantization"),
        extra_parameters=fields.texts("extra_parameters"),
        revision=fields.text("revision"),
        backend_framework_version=fields.text("backend_framework_version"),
        torch_version=fields.text("torch_version"),
        cuda_version=fields.text("cuda_version"),
        triton_version=fields.text("triton_version"),
        gpu_arch=fields.text("gpu_arch"),
        compile_config_digest=fields.text("compile_config_digest"),
    )


# --- the whole record ----------------------------------------------------------------------------


def _backend_type(record: WorkerRecord) -> str:
    if record.nixl_metadata is not None:
        return "nixl"
    return "none" if record.transfer_engine_session_id is None else "transfer_engine"


def record_to_json(record: WorkerRecord) -> str:
    """Return the record as `{rank}` holds it (WorkerRecordJson)."""
    values: dict[str, Any] = {
        "worker_rank": record.worker_rank,
        "backend_type": _backend_type(record),
        "nixl_metadata": list(record.nixl_metadata or b""),
        "transfer_engine_session_id": record.transfer_engine_session_id,
        "tensors": [
            {**asdict(tensor), "addr": str(tensor.addr), "size": str(tensor.size)}
            for tensor in record.tensors
        ],
        "status": int(record.status),
        "updated_at": record.updated_at_ms,
        "metadata_endpoint": record.metadata_endpoint,
        "agent_name": record.agent_name,
        "worker_grpc_endpoint": record.worker_grpc_endpoint,
        "accelerator": record.accelerator,
        "source_load": record.source_load,
        "topology": dict(record.topology),
    }
    if record.artifact is not None:
        values["artifact_source"] = {
            **asdict(record.artifact),
            "total_size": str(record.artifact.total_size),
        }
    return _dump(values)


def _status(value: int) -> SourceStatus:
    return SourceStatus(value) if value in list(SourceStatus) else SourceStatus.UNKNOWN


def _tensor(value: object) -> TensorDescriptor:
    fields = JsonFields(value, "tensor")
    return TensorDescriptor(
        name=fields.text("name"),
        addr=fields.integer("addr", bits=64),
        size=fields.integer("size", bits=64),
        device_id=fields.integer("device_id"),
        dtype=fields.text("dtype"),
    )


def _artifact(value: object) -> ArtifactSummary:
    fields = JsonFields(value, "artifact_source")
    return ArtifactSummary(
        artifact_id=fields.text("artifact_id"),
        total_size=fields.integer("total_size", bits=64),
        file_count=fields.integer("file_count"),
        chunk_count=fields.integer("chunk_count"),
        node_rank=fields.integer("node_rank"),
    )


def record_from_json(text: bytes) -> WorkerRecord:
    """Return the record; what older servers did not write is empty."""
    fields = read_object(text, "record")
    # Records from before the discriminator say what they hold by which field is filled.
    implied = "nixl" if fields.octets("nixl_metadata") else "transfer_engine"
    backend_type = fields.text("backend_type") or implied
    session = fields.text("transfer_engine_session_id") or None
    has_artifact = fields.value("artifact_source") is not None
    return WorkerRecord(
        worker_rank=fields.integer("worker_rank"),
        status=_status(fields.integer("status")),
        updated_at_ms=fields.integer("updated_at", bits=63),
        nixl_metadata=fields.octets("nixl_metadata") if backend_type == "nixl" else None,
        transfer_engine_session_id=session if backend_type == "transfer_engine" else None,
        metadata_endpoint=fields.text("metadata_endpoint"),
        agent_name=fields.text("agent_name"),
        worker_grpc_endpoint=fields.text("worker_grpc_endpoint"),
        accelerator=fields.text("accelerator"),
        source_load=fields.number("source_load"),
        topology=fields.texts("topology"),
        tensors=tuple(_tensor(value) for value in fields.items("tensors")),
        artifact=_artifact(fields.value("artifact_source")) if has_artifact else None,
    )


# --- the small part ------------------------------------------------------------------------------


def small_to_json(record: WorkerRecord) -> str:
    """Return the mutable part as `status:{rank}` holds it; under 200 bytes by any usual value."""
    return _dump(
        {
            "worker_rank": record.worker_rank,
            "status": int(record.status),
            "updated_at": record.updated_at_ms,
            "accelerator": record.accelerator,
            "source_load": record.source_load,
        }
    )


def overlay(record: WorkerRecord, small: bytes | None) -> WorkerRecord:
    """Return `record` with the small part laid over it, if that is at least as fresh."""
    if small is None:
        return record
    fields = read_object(small, "status")
    if fields.integer("updated_at", bits=63) < record.updated_at_ms:
        return record
    return replace(
        record,
        status=_status(fields.integer("status")),
        updated_at_ms=fields.integer("updated_at", bits=63),
        accelerator=fields.text("accelerator") or record.accelerator,
        source_load=fields.number("source_load"),
    )


def rank_from_mark(text: bytes) -> int:
    """Return the rank from a worker's field in the index: decimal, or inside the small JSON."""
    if text.isdigit() and len(text) <= 10:  # 32 bits
        return int(text)
    return read_object(text, "index entry").integer("worker_rank")


def stored_worker(
    mx_source_id: str,
    worker_id: str,
    attributes: bytes | None,
    mark: bytes | None,
    fields: Mapping[bytes, bytes],
) -> StoredWorker | None:
    """Assemble a worker from its index entry `mark` and the fields of its own hash.

    Returns:
        None when there is no record: no entry, or an entry whose record is gone.

    Raises:
        ValueError: any part cannot be read, or the identity is missing.
    """
    if mark is None or not fields:
        return None
    rank = rank_from_mark(mark)
    text = fields.get(str(rank).encode())
    if text is None:
        return None
    if attributes is None:
        raise ValueError(f"{ATTRIBUTES} is missing")
    record = overlay(record_from_json(text), fields.get(status_field(rank).encode()))
    return StoredWorker(mx_source_id, worker_id, attributes_from_json(attributes), record)
