"""Conversion between protobuf messages and core types (docs/adr/0001 says who may use messages)."""

from __future__ import annotations

from typing import cast

from mx_artifacts.core.identity import (
    SourceIdentity,
    SourceType,
    framework_of,
    source_type_of,
)
from mx_artifacts.core.manifest import ArtifactHeader, ManifestChunk, ManifestFile
from mx_artifacts.core.sources import (
    ArtifactSummary,
    SourceQuery,
    SourceRef,
    SourceStatus,
    TensorDescriptor,
    WorkerRecord,
)
from mx_artifacts.errors import ManifestInvalidError, RemoteError
from mx_artifacts.wire.gen.model_express import p2p_pb2 as pb

# --- identity ------------------------------------------------------------------------------------


def identity_to_wire(identity: SourceIdentity) -> pb.SourceIdentity:
    """Return the message of `identity`."""
    return pb.SourceIdentity(**identity.as_dict())


def identity_from_wire(message: pb.SourceIdentity) -> SourceIdentity:
    """Return the identity of `message`; an enum value without a name here stays a number."""
    values = {
        field.name: getattr(message, field.name)
        for field in pb.SourceIdentity.DESCRIPTOR.fields
        if field.name not in ("mx_source_type", "backend_framework", "extra_parameters")
    }
    return SourceIdentity(
        mx_source_type=source_type_of(message.mx_source_type),
        backend_framework=framework_of(message.backend_framework),
        extra_parameters=dict(message.extra_parameters),
        **values,
    )


# --- manifest ------------------------------------------------------------------------------------


def file_to_wire(file: ManifestFile) -> pb.ArtifactManifestFile:
    return pb.ArtifactManifestFile(
        file_index=file.file_index, path=file.path, size=file.size, checksum=file.checksum
    )


def file_from_wire(message: pb.ArtifactManifestFile) -> ManifestFile:
    return ManifestFile(message.file_index, message.path, message.size, message.checksum)


def chunk_to_wire(chunk: ManifestChunk) -> pb.ArtifactManifestChunk:
    return pb.ArtifactManifestChunk(
        chunk_index=chunk.chunk_index,
        file_index=chunk.file_index,
        file_offset=chunk.file_offset,
        length=chunk.length,
        checksum=chunk.checksum,
    )


def chunk_from_wire(message: pb.ArtifactManifestChunk) -> ManifestChunk:
    return ManifestChunk(
        message.chunk_index,
        message.file_index,
        message.file_offset,
        message.length,
        message.checksum,
    )


def header_to_wire(header: ArtifactHeader) -> pb.GetArtifactManifestHeaderResponse:
    return pb.GetArtifactManifestHeaderResponse(
        mx_source_id=header.mx_source_id,
        artifact_id=header.artifact_id,
        manifest_version=header.manifest_version,
        mx_source_type=cast(pb.MxSourceType, int(header.mx_source_type)),
        total_size=header.total_size,
        file_count=header.file_count,
        chunk_count=header.chunk_count,
        chunk_size=header.chunk_size,
        metadata_endpoint=header.metadata_endpoint,
        agent_name=header.agent_name,
        worker_rank=header.worker_rank,
        files=[file_to_wire(f) for f in header.files],
    )


def header_from_wire(message: pb.GetArtifactManifestHeaderResponse) -> ArtifactHeader:
    """Return the header of `message`, or raise ManifestInvalidError for an unknown source type."""
    return ArtifactHeader(
        mx_source_id=message.mx_source_id,
        artifact_id=message.artifact_id,
        mx_source_type=source_type_from_wire(message.mx_source_type),
        total_size=message.total_size,
        file_count=message.file_count,
        chunk_count=message.chunk_count,
        chunk_size=message.chunk_size,
        files=tuple(file_from_wire(f) for f in message.files),
        manifest_version=message.manifest_version,
        metadata_endpoint=message.metadata_endpoint,
        agent_name=message.agent_name,
        worker_rank=message.worker_rank,
    )


def source_type_from_wire(value: int) -> SourceType:
    """Return a manifest's source type; raise ManifestInvalidError for one without a name here."""
    source_type = source_type_of(value)
    if not isinstance(source_type, SourceType):
        raise ManifestInvalidError(f"source type {value} is not known")
    return source_type


# --- worker records ------------------------------------------------------------------------------


def _tensor_to_wire(tensor: TensorDescriptor) -> pb.TensorDescriptor:
    return pb.TensorDescriptor(
        name=tensor.name,
        addr=tensor.addr,
        size=tensor.size,
        device_id=tensor.device_id,
        dtype=tensor.dtype,
    )


def _tensor_from_wire(message: pb.TensorDescriptor) -> TensorDescriptor:
    return TensorDescriptor(
        message.name, message.addr, message.size, message.device_id, message.dtype
    )


def summary_to_wire(summary: ArtifactSummary) -> pb.ArtifactSourceMetadata:
    return pb.ArtifactSourceMetadata(
        artifact_id=summary.artifact_id,
        total_size=summary.total_size,
        file_count=summary.file_count,
        chunk_count=summary.chunk_count,
        node_rank=summary.node_rank,
    )


def summary_from_wire(message: pb.ArtifactSourceMetadata) -> ArtifactSummary:
    return ArtifactSummary(
        message.artifact_id,
        message.total_size,
        message.file_count,
        message.chunk_count,
        message.node_rank,
    )


def status_from_wire(value: int) -> SourceStatus:
    """Return the status; one that this version does not know is UNKNOWN."""
    try:
        return SourceStatus(value)
    except ValueError:
        return SourceStatus.UNKNOWN


def status_to_wire(status: SourceStatus) -> pb.SourceStatus:
    """Return the enum value of `status`."""
    return cast(pb.SourceStatus, int(status))


def worker_to_wire(record: WorkerRecord) -> pb.WorkerMetadata:
    """Return the message of `record`.

    A record without an artifact has a `tensor_source`, an empty one where there are no tensors, as
    the reference's server gives it. Tensors go into the deprecated field too.
    """
    message = pb.WorkerMetadata(
        worker_rank=record.worker_rank,
        status=status_to_wire(record.status),
        updated_at=record.updated_at_ms,
        metadata_endpoint=record.metadata_endpoint,
        agent_name=record.agent_name,
        worker_grpc_endpoint=record.worker_grpc_endpoint,
        accelerator=record.accelerator,
        topology=dict(record.topology),
    )
    if record.nixl_metadata is not None:
        message.nixl_metadata = record.nixl_metadata
    elif record.transfer_engine_session_id is not None:
        message.transfer_engine_session_id = record.transfer_engine_session_id
    if record.artifact is not None:
        message.artifact_source.CopyFrom(summary_to_wire(record.artifact))
    else:
        tensors = [_tensor_to_wire(t) for t in record.tensors]
        message.tensor_source.SetInParent()
        message.tensor_source.tensors.extend(tensors)
        message.tensors.extend(tensors)
    return message


def worker_from_wire(message: pb.WorkerMetadata) -> WorkerRecord:
    """Return the record of `message`, reading tensors from either field."""
    backend = message.WhichOneof("backend_metadata")
    payload = message.WhichOneof("source_payload")
    tensors = message.tensor_source.tensors if payload == "tensor_source" else message.tensors
    return WorkerRecord(
        worker_rank=message.worker_rank,
        status=status_from_wire(message.status),
        updated_at_ms=message.updated_at,
        nixl_metadata=message.nixl_metadata if backend == "nixl_metadata" else None,
        transfer_engine_session_id=(
            message.transfer_engine_session_id if backend == "transfer_engine_session_id" else None
        ),
        metadata_endpoint=message.metadata_endpoint,
        agent_name=message.agent_name,
        worker_grpc_endpoint=message.worker_grpc_endpoint,
        accelerator=message.accelerator,
        topology=dict(message.topology),
        tensors=tuple(_tensor_from_wire(t) for t in tensors),
        artifact=(
            summary_from_wire(message.artifact_source) if payload == "artifact_source" else None
        ),
    )


# --- listings ------------------------------------------------------------------------------------


def ref_to_wire(ref: SourceRef) -> pb.SourceInstanceRef:
    message = pb.SourceInstanceRef(
        mx_source_id=ref.mx_source_id,
        worker_id=ref.worker_id,
        model_name=ref.model_name,
        worker_rank=ref.worker_rank,
        accelerator=ref.accelerator,
        updated_at=ref.updated_at_ms,
        topology=dict(ref.topology),
    )
    if ref.source_load is not None:
        message.source_load = ref.source_load
    if ref.training_step is not None:
        message.training_step = ref.training_step
    if ref.layout_signature is not None:
        message.layout_signature = ref.layout_signature
    return message


def ref_from_wire(message: pb.SourceInstanceRef) -> SourceRef:
    return SourceRef(
        mx_source_id=message.mx_source_id,
        worker_id=message.worker_id,
        model_name=message.model_name,
        worker_rank=message.worker_rank,
        accelerator=message.accelerator,
        updated_at_ms=message.updated_at,
        topology=dict(message.topology),
        source_load=message.source_load if message.HasField("source_load") else None,
        training_step=message.training_step if message.HasField("training_step") else None,
        layout_signature=message.layout_signature if message.HasField("layout_signature") else None,
    )


def query_to_wire(query: SourceQuery, identity: SourceIdentity | None) -> pb.ListSourcesRequest:
    """Return the request; what the wire cannot say (an id without its identity) is left out."""
    return pb.ListSourcesRequest(
        identity=None if identity is None else identity_to_wire(identity),
        status_filter=None if query.status is None else status_to_wire(query.status),
        model_name_filter=query.model_name,
        worker_rank_filter=query.worker_rank,
        min_training_step=query.min_training_step,
        min_updated_at=query.min_updated_at_ms,
        limit=query.limit,
    )


def query_from_wire(message: pb.ListSourcesRequest, mx_source_id: str | None) -> SourceQuery:
    """Return the query; `mx_source_id` is that of the message's identity, if it filters."""

    def optional(name: str) -> int | None:
        return getattr(message, name) if message.HasField(name) else None

    status = optional("status_filter")
    return SourceQuery(
        mx_source_id=mx_source_id,
        status=None if status is None else status_from_wire(status),
        model_name=message.model_name_filter if message.HasField("model_name_filter") else None,
        worker_rank=optional("worker_rank_filter"),
        min_training_step=optional("min_training_step"),
        min_updated_at_ms=optional("min_updated_at"),
        limit=optional("limit"),
    )


def require(condition: bool, what: str, peer: str) -> None:
    """Raise RemoteError when a peer's answer lacks what the protocol promises."""
    if not condition:
        raise RemoteError(
            f"{peer} sent an invalid answer: {what}",
            hint="check that mx-artifacts or ModelExpress listens at that address",
        )
