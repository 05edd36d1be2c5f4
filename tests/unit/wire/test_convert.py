"""Protobuf <-> core: nothing is lost, field numbers are the reference's, codes map both ways."""

from __future__ import annotations

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mx_artifacts import errors
from mx_artifacts.core.identity import BackendFramework, SourceIdentity, SourceType
from mx_artifacts.core.member_index import MemberIndex, joined
from mx_artifacts.core.sources import (
    ArtifactSummary,
    SourceQuery,
    SourceRef,
    SourceStatus,
    TensorDescriptor,
    WorkerRecord,
)
from mx_artifacts.wire import convert, extension, status
from mx_artifacts.wire.gen.model_express import p2p_pb2 as pb
from tests.support.indexes import Row, index_of_rows, rows_of

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_U32 = st.integers(0, 2**32 - 1)
_U64 = st.integers(0, 2**64 - 1)
_IDENTITIES = st.builds(
    SourceIdentity,
    mx_version=_TEXT, mx_source_type=st.sampled_from(SourceType) | st.just(10), model_name=_TEXT,
    backend_framework=st.sampled_from(BackendFramework) | st.just(7), tensor_parallel_size=_U32,
    pipeline_parallel_size=_U32, expert_parallel_size=_U32, dtype=_TEXT, quantization=_TEXT,
    extra_parameters=st.dictionaries(_TEXT, _TEXT, max_size=3), revision=_TEXT,
    backend_framework_version=_TEXT, torch_version=_TEXT, cuda_version=_TEXT,
    triton_version=_TEXT, gpu_arch=_TEXT, compile_config_digest=_TEXT,
)  # fmt: skip
_SUMMARIES = st.builds(ArtifactSummary, _TEXT, _U64, _U32, _U32, _U32)
_TENSORS = st.builds(TensorDescriptor, _TEXT, _U64, _U64, _U32, _TEXT)
_RECORDS = st.builds(
    WorkerRecord,
    worker_rank=_U32, status=st.sampled_from(SourceStatus),
    updated_at_ms=st.integers(0, 2**62), nixl_metadata=st.none() | st.binary(max_size=9),
    metadata_endpoint=_TEXT, agent_name=_TEXT, worker_grpc_endpoint=_TEXT, accelerator=_TEXT,
    topology=st.dictionaries(_TEXT, _TEXT, max_size=3),
)  # fmt: skip


@given(_IDENTITIES)
def test_identity_round_trip(identity: SourceIdentity) -> None:
    message = pb.SourceIdentity.FromString(convert.identity_to_wire(identity).SerializeToString())
    assert convert.identity_from_wire(message) == identity


@given(_RECORDS, st.none() | _SUMMARIES, st.lists(_TENSORS, max_size=2))
def test_worker_round_trip(
    record: WorkerRecord, artifact: ArtifactSummary | None, tensors: list[TensorDescriptor]
) -> None:
    from dataclasses import replace

    record = replace(record, artifact=artifact, tensors=() if artifact else tuple(tensors))
    message = pb.WorkerMetadata.FromString(convert.worker_to_wire(record).SerializeToString())
    assert convert.worker_from_wire(message) == record


def test_tensors_of_old_publishers_are_read_from_the_deprecated_field() -> None:
    message = pb.WorkerMetadata(tensors=[pb.TensorDescriptor(name="w", addr=1, size=2)])
    assert convert.worker_from_wire(message).tensors == (TensorDescriptor("w", 1, 2, 0, ""),)


def test_a_record_without_an_artifact_has_a_tensor_source() -> None:
    """As the reference's server gives it, also where there are no tensors (endpoints only)."""
    message = convert.worker_to_wire(WorkerRecord(metadata_endpoint="node:5555"))
    assert message.WhichOneof("source_payload") == "tensor_source"
    assert not message.tensor_source.tensors


def test_listing_round_trip_keeps_absence() -> None:
    ref = SourceRef("a" * 16, "w", "m", 3, "cuda", 5, topology={"rack": "1"}, source_load=0.5)
    assert convert.ref_from_wire(convert.ref_to_wire(ref)) == ref
    idle = convert.ref_from_wire(convert.ref_to_wire(SourceRef("a", "w", "m", 0)))
    assert idle.source_load is None


def test_absent_filters_differ_from_zero() -> None:
    assert convert.query_from_wire(pb.ListSourcesRequest(), None) == SourceQuery()
    message = pb.ListSourcesRequest(worker_rank_filter=0, status_filter=2, limit=0)  # type: ignore[arg-type]
    assert convert.query_from_wire(message, None) == SourceQuery(
        worker_rank=0, status=SourceStatus.READY, limit=0
    )


def test_unknown_enum_numbers() -> None:
    with pytest.raises(errors.ManifestInvalidError):
        convert.source_type_from_wire(77)
    assert convert.status_from_wire(77) is SourceStatus.UNKNOWN


# wire.md's table, as (message, {number: name}); a change here breaks deployed peers.
@pytest.mark.parametrize(
    ("message", "numbers"),
    [
        (pb.SourceIdentity, "mx_version mx_source_type model_name backend_framework "
         "tensor_parallel_size pipeline_parallel_size expert_parallel_size dtype quantization "
         "extra_parameters revision backend_framework_version torch_version cuda_version "
         "triton_version gpu_arch compile_config_digest"),
        (pb.ArtifactSourceMetadata, "artifact_id total_size file_count chunk_count node_rank"),
        (pb.ArtifactManifestFile, "file_index path size checksum"),
        (pb.ArtifactManifestChunk, "chunk_index file_index file_offset length checksum"),
        (pb.GetArtifactManifestHeaderResponse, "mx_source_id artifact_id manifest_version "
         "mx_source_type total_size file_count chunk_count chunk_size metadata_endpoint "
         "agent_name worker_rank files"),
        (pb.GetArtifactManifestChunksResponse,
         "mx_source_id artifact_id start_chunk_index chunks next_page_token"),
        (pb.PrepareArtifactChunkResponse,
         "mx_source_id artifact_id lease_id chunk source source_metadata"),
        (pb.ArtifactChunkTransferDescriptor, "addr length device_id"),
        (pb.SourceInstanceRef, "mx_source_id worker_id model_name worker_rank accelerator "
         "updated_at training_step layout_signature topology source_load"),
        (pb.ListSourcesRequest, "identity status_filter model_name_filter worker_rank_filter "
         "min_training_step min_updated_at limit"),
        (pb.UpdateStatusRequest, "mx_source_id worker_rank status worker_id source_load"),
        (pb.PublishMetadataRequest, "identity worker worker_id pod_name pod_uid pod_namespace"),
    ],
)  # fmt: skip
def test_field_numbers(message: type, numbers: str) -> None:
    fields = {f.name: f.number for f in message.DESCRIPTOR.fields}  # type: ignore[attr-defined]
    assert fields == {name: i for i, name in enumerate(numbers.split(), start=1)}


def test_worker_metadata_field_numbers() -> None:
    fields = {f.name: f.number for f in pb.WorkerMetadata.DESCRIPTOR.fields}
    assert fields == {
        "worker_rank": 1, "nixl_metadata": 2, "tensors": 3, "status": 4, "updated_at": 5,
        "metadata_endpoint": 6, "agent_name": 7, "worker_grpc_endpoint": 8, "accelerator": 9,
        "transfer_engine_session_id": 10, "topology": 11, "tensor_source": 20,
        "artifact_source": 21,
    }  # fmt: skip


def _leaves(kind: type[errors.MxArtifactsError]) -> list[type[errors.MxArtifactsError]]:
    return [kind, *(leaf for sub in kind.__subclasses__() for leaf in _leaves(sub))]


def test_only_a_busy_source_is_resource_exhausted() -> None:
    busy = [
        kind for kind in _leaves(errors.MxArtifactsError)
        if kind.__module__ == errors.__name__  # not the command line's
        and status.code_of(kind("x")) is grpc.StatusCode.RESOURCE_EXHAUSTED
    ]  # fmt: skip
    assert busy == [errors.NoFreeSlotError]


class _Failure(grpc.RpcError):  # type: ignore[misc]  # grpc is not typed
    def __init__(self, code: grpc.StatusCode) -> None:
        super().__init__()
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return "because"


@pytest.mark.parametrize(
    ("code", "central", "worker"),
    [
        (grpc.StatusCode.UNAVAILABLE, errors.BackendUnavailableError, errors.PeerLostError),
        (grpc.StatusCode.DEADLINE_EXCEEDED, errors.BackendUnavailableError, errors.PeerLostError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, errors.RemoteError, errors.NoFreeSlotError),
        (grpc.StatusCode.NOT_FOUND, errors.RecordNotFoundError, errors.RecordNotFoundError),
        (grpc.StatusCode.UNIMPLEMENTED, errors.RemoteError, errors.RemoteError),
        (grpc.StatusCode.INTERNAL, errors.RemoteError, errors.RemoteError),
    ],
)
def test_status_codes_become_errors_that_name_the_peer(
    code: grpc.StatusCode, central: type[Exception], worker: type[Exception]
) -> None:
    for translate, kind in (
        (status.error_from_central, central),
        (status.error_from_worker, worker),
    ):
        error = translate(_Failure(code), "node:1")
        assert type(error) is kind
        assert "node:1" in str(error)


ENTRIES: list[Row] = [
    ("k", True, 0, 0o755, 0, 0, ()),
    ("k/long", False, 9 << 20, 0o644, -1, 7, (1, 2, 2**32 - 1)),
    ("k/é", False, 3, 0o755, 2**60, 2**32 - 1, ()),
    ("k/last", False, 5 << 20, 0o644, 0, 0, (4, 5)),
]


def test_index_round_trip() -> None:
    entries = [(f"{n}/{row[0]}", *row[1:]) for n in range(3000) for row in ENTRIES]
    pages = list(extension.index_to_wire(3, index_of_rows(entries)))
    assert [page.file_index for page in pages] == [3, 3, 3]
    assert rows_of(joined(map(extension.index_from_wire, pages))) == entries
    assert list(extension.index_to_wire(0, MemberIndex())) == []


def test_pages_of_long_paths_fit_into_a_message() -> None:
    entries = [("x" * 4096, False, 1, 0o644, 0, 0, ())] * 3000
    pages = extension.index_to_wire(0, index_of_rows(entries))
    assert max(page.ByteSize() for page in pages) < 4 << 20


@pytest.mark.parametrize("spoil", ["sizes", "block_counts", "block_crc32c", "paths"])
def test_columns_of_different_lengths_are_refused(spoil: str) -> None:
    (page,) = extension.index_to_wire(0, index_of_rows(ENTRIES))
    getattr(page, spoil).pop()
    with pytest.raises(errors.ManifestInvalidError, match="different lengths"):
        extension.index_from_wire(page)
