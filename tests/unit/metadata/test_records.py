"""The JSON forms of the Redis layout: the documentation's examples, round trips, damaged text."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mx_artifacts.core.identity import BackendFramework, SourceIdentity, SourceType
from mx_artifacts.core.sources import (
    ArtifactSummary,
    SourceStatus,
    TensorDescriptor,
    WorkerRecord,
)
from mx_artifacts.metadata import records

DOC_TENSOR_RECORD = b"""{
  "worker_rank": 0,
  "backend_type": "nixl",
  "nixl_metadata": [222, 173, 190, 239],
  "transfer_engine_session_id": null,
  "tensors": [
    {
      "name": "model.layers.0.self_attn.q_proj.weight",
      "addr": "139948187451390",
      "size": "134217728",
      "device_id": 0,
      "dtype": "bfloat16"
    }
  ],
  "status": 2,
  "updated_at": 1700000000000
}"""
DOC_ARTIFACT_RECORD = b"""{
  "worker_rank": 0,
  "backend_type": "none",
  "nixl_metadata": [],
  "transfer_engine_session_id": null,
  "tensors": [],
  "status": 2,
  "artifact_source": {
    "artifact_id": "a0f08392f2abc45f78bd59f0fe2c601750c2b270dc5cc37c2166d86a65398466",
    "total_size": "67108864",
    "file_count": 1,
    "chunk_count": 8
  },
  "updated_at": 1700000000000
}"""
T = 1_700_000_000_000


def test_the_documented_tensor_record() -> None:
    assert records.record_from_json(DOC_TENSOR_RECORD) == WorkerRecord(
        status=SourceStatus.READY,
        updated_at_ms=T,
        nixl_metadata=bytes.fromhex("deadbeef"),
        tensors=(
            TensorDescriptor(
                "model.layers.0.self_attn.q_proj.weight", 139948187451390, 134217728, 0, "bfloat16"
            ),
        ),
    )


def test_the_documented_artifact_record() -> None:
    assert records.record_from_json(DOC_ARTIFACT_RECORD) == WorkerRecord(
        status=SourceStatus.READY,
        updated_at_ms=T,
        artifact=ArtifactSummary(
            "a0f08392f2abc45f78bd59f0fe2c601750c2b270dc5cc37c2166d86a65398466", 67108864, 1, 8, 0
        ),
    )


@pytest.mark.parametrize("example", [DOC_TENSOR_RECORD, DOC_ARTIFACT_RECORD])
def test_written_records_have_all_documented_fields(example: bytes) -> None:
    shown = json.loads(example)
    written = json.loads(records.record_to_json(records.record_from_json(example)))
    if "artifact_source" in shown:
        shown["artifact_source"]["node_rank"] = 0
    assert shown.items() <= written.items()


def test_the_documented_index_entries() -> None:
    attributes = b'{"model_name":"deepseek-ai/DeepSeek-V3","mx_version":"0.5.0"}'
    identity = records.attributes_from_json(attributes)
    assert identity == SourceIdentity(model_name="deepseek-ai/DeepSeek-V3", mx_version="0.5.0")
    assert records.rank_of_entry(b"1") == 1
    assert records.record_of_entry(b"1") is None
    summary = b'{"worker_rank":4,"status":2,"updated_at":1700000000000,"accelerator":"cuda"}'
    assert records.rank_of_entry(summary) == 4
    assert records.record_of_entry(summary) == WorkerRecord(
        worker_rank=4, status=SourceStatus.READY, updated_at_ms=T, accelerator="cuda"
    )


def test_an_entry_without_a_time_is_not_a_summary() -> None:
    assert records.record_of_entry(b'{"worker_rank":4,"status":2}') is None


def test_a_load_that_is_not_known_is_left_out_since_older_servers_cannot_read_null() -> None:
    for text in (records.record_to_json(WorkerRecord()), records.summary_to_json(WorkerRecord())):
        assert "source_load" not in json.loads(text)


uint32 = st.integers(0, (1 << 32) - 1)
uint64 = st.integers(0, (1 << 64) - 1)
texts = st.text(max_size=8)
labels = st.dictionaries(texts, texts, max_size=3)
identities = st.builds(
    SourceIdentity,
    mx_version=texts,
    mx_source_type=st.sampled_from(SourceType) | st.just(10),
    model_name=texts,
    backend_framework=st.sampled_from(BackendFramework) | st.just(7),
    tensor_parallel_size=uint32,
    dtype=texts,
    extra_parameters=labels,
    revision=texts,
    torch_version=texts,
    compile_config_digest=texts,
)
worker_records = st.builds(
    WorkerRecord,
    worker_rank=uint32,
    status=st.sampled_from(SourceStatus),
    updated_at_ms=st.integers(0, (1 << 63) - 1),
    nixl_metadata=st.none() | st.binary(max_size=8),
    metadata_endpoint=texts,
    agent_name=texts,
    worker_grpc_endpoint=texts,
    accelerator=texts,
    topology=labels,
    tensors=st.lists(
        st.builds(TensorDescriptor, texts, uint64, uint64, uint32, texts), max_size=2
    ).map(tuple),
    artifact=st.none() | st.builds(ArtifactSummary, texts, uint64, uint32, uint32, uint32),
    source_load=st.none() | st.floats(0, 1),
)


def test_the_small_part_has_the_accelerator_too() -> None:
    record = WorkerRecord(worker_rank=0, updated_at_ms=T, accelerator="cuda")
    assert records.overlay(record, b'{"updated_at":1700000000000}').accelerator == "cuda"
    small = b'{"updated_at":1700000000000,"accelerator":"xpu"}'
    assert records.overlay(record, small).accelerator == "xpu"
    older = b'{"updated_at":1,"accelerator":"xpu"}'
    assert records.overlay(record, older).accelerator == "cuda"


@given(identities)
def test_identity_round_trip(identity: SourceIdentity) -> None:
    assert records.attributes_from_json(records.attributes_to_json(identity).encode()) == identity


@given(worker_records)
def test_record_round_trip(record: WorkerRecord) -> None:
    assert records.record_from_json(records.record_to_json(record).encode()) == record
    summary = records.summary_to_json(record).encode()
    assert records.overlay(record, summary) == record
    listed = records.record_of_entry(summary)
    assert listed is not None
    assert (listed.worker_rank, listed.status) == (record.worker_rank, record.status)
    assert (listed.updated_at_ms, listed.source_load) == (record.updated_at_ms, record.source_load)
    assert (listed.accelerator, listed.topology) == (record.accelerator, record.topology)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("updated_at", 1.7e12, 1_700_000_000_000),
        ("updated_at", "1700000000000", 1_700_000_000_000),
        ("updated_at", None, 0),
    ],
)
def test_numbers_in_the_forms_that_other_writers_use(
    field: str, value: object, expected: int
) -> None:
    record = records.record_from_json(json.dumps({field: value}).encode())
    assert record.updated_at_ms == expected


def test_records_from_before_the_discriminator() -> None:
    assert records.record_from_json(b'{"nixl_metadata":[1]}').nixl_metadata == b"\x01"
    session = records.record_from_json(b'{"nixl_metadata":[],"transfer_engine_session_id":"ip:1"}')
    assert (session.nixl_metadata, session.transfer_engine_session_id) == (None, "ip:1")
    assert records.record_from_json(b"{}") == WorkerRecord(status=SourceStatus.UNKNOWN)


def test_an_unknown_status_is_unknown() -> None:
    assert records.record_from_json(b'{"status":9}').status is SourceStatus.UNKNOWN


def test_the_summary_overlays_when_at_least_as_fresh() -> None:
    record = WorkerRecord(updated_at_ms=T, source_load=0.5)

    def overlaid(updated_at: int) -> SourceStatus:
        summary = {"worker_rank": 0, "status": 3, "updated_at": updated_at}
        return records.overlay(record, json.dumps(summary).encode()).status

    assert overlaid(T - 1) is SourceStatus.INITIALIZING
    assert overlaid(T) is SourceStatus.STALE
    assert overlaid(T + 1) is SourceStatus.STALE
    assert records.overlay(record, None) == record


def test_the_summary_is_small() -> None:
    record = WorkerRecord(
        worker_rank=(1 << 32) - 1,
        updated_at_ms=(1 << 53),
        accelerator="a" * 32,
        source_load=0.30000001192092896,
        topology={"zone": "eu-west-1a", "rack": "r17"},
        tensors=(TensorDescriptor("w", 1, 2, 3, "bfloat16"),) * 100,
    )
    assert len(records.summary_to_json(record)) < 220


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"garbage",
        b"\xff\xfe\x00",
        b"[]",
        b"null",
        b"[" * 100_000,
        b'{"worker_rank":-1}',
        b'{"worker_rank":4294967296}',
        b'{"worker_rank":1.5}',
        b'{"worker_rank":true}',
        b'{"worker_rank":Infinity}',
        b'{"worker_rank":[]}',
        b'{"updated_at":9223372036854775808}',
        b'{"agent_name":5}',
        b'{"agent_name":"\\ud800"}',
        b'{"topology":{"a":1}}',
        b'{"topology":[1]}',
        b'{"nixl_metadata":[256]}',
        b'{"nixl_metadata":"abc"}',
        b'{"tensors":[5]}',
        b'{"tensors":[{"addr":"18446744073709551616"}]}',
        b'{"artifact_source":"x"}',
        b'{"source_load":"0.5"}',
    ],
)
def test_damaged_records_are_refused_with_a_reason(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"record|tensor|artifact_source"):
        records.record_from_json(text)


def test_a_load_that_no_float_holds_is_not_known() -> None:
    assert records.record_from_json(b'{"source_load":1e300}').source_load is None


class TestStoredRecord:
    record: ClassVar = WorkerRecord(worker_rank=2, updated_at_ms=T)
    fields: ClassVar = {b"2": records.record_to_json(record).encode()}

    def test_is_of_the_rank_that_the_index_names(self) -> None:
        other = records.record_to_json(replace(self.record, worker_rank=1)).encode()
        assert records.stored_record(b"2", {b"1": other, **self.fields}) == self.record

    @pytest.mark.parametrize(("entry", "fields"), [(b"2", {}), (b"3", fields)], ids=str)
    def test_nothing_is_there(self, entry: bytes, fields: dict[bytes, bytes]) -> None:
        assert records.stored_record(entry, fields) is None

    @pytest.mark.parametrize(
        ("entry", "fields"),
        [(b"x", fields), (b"2", {**fields, b"status:2": b"x"}), (b"2", {b"2": b"x"})],
    )
    def test_unreadable(self, entry: bytes, fields: dict[bytes, bytes]) -> None:
        with pytest.raises(ValueError, match=r"\w+ "):
            records.stored_record(entry, fields)


@pytest.mark.parametrize("text", [b"{", b'{"mx_source_type":-1}', b"[]"])
def test_an_identity_that_cannot_be_read(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w+ "):
        records.attributes_from_json(text)
