"""Records as Redis keeps them: the JSON forms that deployed ModelExpress servers read and write.

    mx:source:{id}              hash: __attributes__ -> identity; {worker_id} -> summary, or from
                                older servers the rank in decimal
    mx:source:{id}:{worker_id}  hash: {rank} -> the whole record; status:{rank} -> summary

The summary is a small JSON: worker_rank, status, updated_at, accelerator, topology, source_load. A
heartbeat writes it to both places. It counts instead of what the record says when it is at least as
fresh, and a listing reads the one in the index and nothing else. Deployed servers read topology and
accelerator from it too, and copy them at each heartbeat that they receive, so both must be in it.
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
    TensorDescriptor,
    WorkerRecord,
)
from mx_artifacts.metadata.json_fields import JsonFields

ATTRIBUTES = "__attributes__"
"""Field of a source's index hash that holds the identity; never a worker id."""


def index_key(mx_source_id: str) -> str:
    """Return the key of a source's index."""
    return f"mx:source:{mx_source_id}"


def worker_key(mx_source_id: str, worker_id: str) -> str:
    """Return the key of a worker's hash."""
    return f"mx:source:{mx_source_id}:{worker_id}"


def status_field(worker_rank: int) -> str:
    """Return the field of a worker's hash that holds the summary of a rank."""
    return f"status:{worker_rank}"


def _dump(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


# --- identity ------------------------------------------------------------------------------------


def attributes_to_json(identity: SourceIdentity) -> str:
    """Return the identity as `__attributes__` holds it: all fields, enums as numbers."""
    return _dump(identity.as_dict())


def attributes_from_json(text: bytes) -> SourceIdentity:
    """Return the identity; fields that are missing are empty, as in records of older servers."""
    fields = JsonFields.parse(text, ATTRIBUTES)
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
        "topology": dict(record.topology),
        **_load(record),
    }
    if record.artifact is not None:
        values["artifact_source"] = {
            **asdict(record.artifact),
            "total_size": str(record.artifact.total_size),
        }
    return _dump(values)


def _load(record: WorkerRecord) -> Mapping[str, float]:
    """Return the load to be written; older servers cannot read a record in which it is null."""
    return {} if record.source_load is None else {"source_load": record.source_load}


_STATUSES = {int(status): status for status in SourceStatus}


def _status(value: int) -> SourceStatus:
    return _STATUSES.get(value, SourceStatus.UNKNOWN)


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
    fields = JsonFields.parse(text, "record")
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


# --- the summary ---------------------------------------------------------------------------------


def summary_to_json(record: WorkerRecord) -> str:
    """Return the summary of a record: under 200 bytes with any usual topology."""
    return _dump(
        {
            "worker_rank": record.worker_rank,
            "status": int(record.status),
            "updated_at": record.updated_at_ms,
            "accelerator": record.accelerator,
            "topology": dict(record.topology),
            **_load(record),
        }
    )


def overlay(record: WorkerRecord, summary: bytes | None) -> WorkerRecord:
    """Return `record` with the summary laid over it, if that is at least as fresh."""
    if summary is None:
        return record
    fields = JsonFields.parse(summary, "status")
    if fields.integer("updated_at", bits=63) < record.updated_at_ms:
        return record
    return replace(
        record,
        status=_status(fields.integer("status")),
        updated_at_ms=fields.integer("updated_at", bits=63),
        accelerator=fields.text("accelerator") or record.accelerator,
        source_load=fields.number("source_load"),
    )


def _is_rank(entry: bytes) -> bool:
    return entry.isdigit() and len(entry) <= 10  # 32 bits


def rank_of_entry(entry: bytes) -> int:
    """Return the rank from a worker's entry in the index: decimal, or in the summary."""
    if _is_rank(entry):
        return int(entry)
    return JsonFields.parse(entry, "index entry").integer("worker_rank")


def record_of_entry(entry: bytes) -> WorkerRecord | None:
    """Return what a worker's entry in the index says of its record: the summary's fields alone.

    Returns:
        None when it holds the rank only, as older servers write it; the record must then be read.
    """
    if _is_rank(entry):
        return None
    fields = JsonFields.parse(entry, "index entry")
    if fields.value("updated_at") is None:
        return None
    return WorkerRecord(
        worker_rank=fields.integer("worker_rank"),
        status=_status(fields.integer("status")),
        updated_at_ms=fields.integer("updated_at", bits=63),
        accelerator=fields.text("accelerator"),
        topology=fields.texts("topology"),
        source_load=fields.number("source_load"),
    )


def stored_record(entry: bytes, fields: Mapping[bytes, bytes]) -> WorkerRecord | None:
    """Assemble a record from its index entry and the fields of its worker's hash.

    Returns:
        None if the record no longer exists.

    Raises:
        ValueError: any part cannot be read.
    """
    rank = rank_of_entry(entry)
    text = fields.get(str(rank).encode())
    if text is None:
        return None
    return overlay(record_from_json(text), fields.get(status_field(rank).encode()))
