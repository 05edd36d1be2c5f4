"""One suite over every metadata backend. A backend adds itself to BACKENDS, nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mx_artifacts.core.identity import (
    BackendFramework,
    SourceIdentity,
    SourceType,
    compute_mx_source_id,
)
from mx_artifacts.core.sources import (
    ArtifactSummary,
    PodIdentity,
    SourceQuery,
    SourceStatus,
    TensorDescriptor,
    WorkerRecord,
)
from mx_artifacts.metadata.base import MetadataBackend
from mx_artifacts.metadata.registry import create_backend
from mx_artifacts.metadata.summary import SummaryRow, summary_of
from tests.support.valkey import RedisProcess, redis_binary, running, valkey_binary

BACKENDS = ("memory", "valkey", "redis-server")

IDENTITY = SourceIdentity(
    mx_source_type=SourceType.TRITON_CACHE,
    model_name="org/mödel",
    backend_framework=BackendFramework.VLLM,
    tensor_parallel_size=2,
    dtype="bfloat16",
    extra_parameters={"triton_key": "K"},
    cuda_version="13.0",
    gpu_arch="sm90",
)
SOURCE = compute_mx_source_id(IDENTITY)
ARTIFACT = ArtifactSummary("a" * 64, total_size=1 << 60, file_count=1, chunk_count=7, node_rank=2)
RECORD = WorkerRecord(
    worker_rank=3,
    status=SourceStatus.INITIALIZING,
    updated_at_ms=1_700_000_000_000,
    metadata_endpoint="node:5555",
    agent_name="agent",
    worker_grpc_endpoint="node:6555",
    accelerator="cuda",
    topology={"rack": "r1"},
    artifact=ARTIFACT,
)
T = RECORD.updated_at_ms
POD = PodIdentity()

Scenario = Callable[[MetadataBackend], Awaitable[None]]
Run = Callable[[Scenario], None]


@pytest.fixture(scope="module", params=BACKENDS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RedisProcess | None]:
    """The process behind the backend, or None when it has none."""
    binary: Path | None = None
    if request.param == "valkey":
        binary = valkey_binary()
    elif request.param == "redis-server":
        binary = redis_binary()
        if binary is None:
            pytest.skip("no redis-server on this machine (apt-get install redis-server)")
    if binary is None:
        yield None
        return
    with running(binary, tmp_path_factory.mktemp("redis")) as process:
        yield process


@pytest.fixture
def run(server: RedisProcess | None) -> Run:
    """Run a scenario over a started, empty backend on an event loop of its own."""
    if server is not None:
        server.reset()

    def run_scenario(scenario: Scenario) -> None:
        async def main() -> None:
            backend = create_backend(server.url if server else "memory:")
            await backend.start()
            try:
                await scenario(backend)
            finally:
                await backend.close()

        asyncio.run(main())

    return run_scenario


async def put(
    backend: MetadataBackend,
    worker_id: str = "w1",
    record: WorkerRecord = RECORD,
    identity: SourceIdentity = IDENTITY,
) -> None:
    await backend.records.put(compute_mx_source_id(identity), worker_id, identity, record, POD)


async def status_of(backend: MetadataBackend, worker_id: str = "w1") -> tuple[SourceStatus, int]:
    stored = await backend.records.get(SOURCE, worker_id)
    assert stored is not None
    return stored.record.status, stored.record.updated_at_ms


async def row_of(backend: MetadataBackend, worker_id: str = "w1") -> SummaryRow:
    [row] = [row for row in await backend.records.list(SourceQuery()) if row.worker_id == worker_id]
    return row


async def workers(backend: MetadataBackend, query: SourceQuery = SourceQuery()) -> list[str]:  # noqa: B008
    return [ref.worker_id for ref in await backend.records.list(query)]


def test_get_returns_all_fields_of_a_stored_record(run: Run) -> None:
    tensors = (TensorDescriptor("w", (1 << 64) - 1, 1 << 63, 7, "bfloat16"),)
    records = {
        "artifact": RECORD,
        "nixl": replace(RECORD, artifact=None, nixl_metadata=b"\x00\xff", tensors=tensors),
        "mooncake": replace(RECORD, artifact=None, transfer_engine_session_id="ip:1"),
        "empty-blob": replace(RECORD, nixl_metadata=b""),
        "bare": WorkerRecord(updated_at_ms=T),
    }

    async def scenario(backend: MetadataBackend) -> None:
        for worker_id, record in records.items():
            await put(backend, worker_id, record)
        for worker_id, record in records.items():
            stored = await backend.records.get(SOURCE, worker_id)
            assert stored is not None
            assert stored.record == record
            assert stored.identity == IDENTITY
            assert (stored.mx_source_id, stored.worker_id) == (SOURCE, worker_id)

    run(scenario)


def test_an_empty_backend_says_so(run: Run) -> None:
    async def scenario(backend: MetadataBackend) -> None:
        await backend.ping()
        assert await backend.records.get(SOURCE, "w1") is None
        assert await backend.records.list(SourceQuery()) == []
        assert await backend.records.list(SourceQuery(mx_source_id=SOURCE)) == []
        assert [ref async for ref in backend.records.scan()] == []
        assert not await backend.records.update_status(SOURCE, "w1", 3, SourceStatus.READY, T, None)
        assert not await backend.records.delete(SOURCE, "w1")

    run(scenario)


def test_a_second_put_replaces_the_record_and_its_rank(run: Run) -> None:
    again = replace(RECORD, worker_rank=5, updated_at_ms=T - 10, accelerator="xpu", artifact=None)

    async def scenario(backend: MetadataBackend) -> None:
        await put(backend)
        await backend.records.update_status(SOURCE, "w1", 3, SourceStatus.READY, T + 10, 0.5)
        await put(backend, record=again)
        stored = await backend.records.get(SOURCE, "w1")
        assert stored is not None
        assert stored.record == again
        assert [ref.worker_rank for ref in await backend.records.list(SourceQuery())] == [5]
        assert not await backend.records.update_status(SOURCE, "w1", 3, SourceStatus.READY, T, None)

    run(scenario)


def test_a_heartbeat_changes_status_time_and_load_alone(run: Run) -> None:
    async def scenario(backend: MetadataBackend) -> None:
        await put(backend)
        assert await backend.records.update_status(SOURCE, "w1", 3, SourceStatus.READY, T + 1, 0.25)
        stored = await backend.records.get(SOURCE, "w1")
        assert stored is not None
        assert stored.record == replace(
            RECORD, status=SourceStatus.READY, updated_at_ms=T + 1, source_load=0.25
        )
        assert await backend.records.update_status(SOURCE, "w1", 3, SourceStatus.READY, T + 2, None)
        [ref] = await backend.records.list(SourceQuery())
        assert (ref.source_load, ref.updated_at_ms) == (None, T + 2)
        assert (ref.accelerator, ref.topology) == ("cuda", {"rack": "r1"})

    run(scenario)


def test_a_heartbeat_of_another_rank_or_worker_is_unknown(run: Run) -> None:
    async def scenario(backend: MetadataBackend) -> None:
        await put(backend)
        assert not await backend.records.update_status(
            SOURCE, "w1", 4, SourceStatus.READY, T + 1, None
        )
        assert not await backend.records.update_status(
            SOURCE, "w2", 3, SourceStatus.READY, T + 1, None
        )
        assert not await backend.records.update_status(
            "0" * 16, "w1", 3, SourceStatus.READY, T + 1, None
        )
        assert await status_of(backend) == (SourceStatus.INITIALIZING, T)

    run(scenario)


def test_a_late_heartbeat_does_not_revive_a_stale_record(run: Run) -> None:
    async def scenario(backend: MetadataBackend) -> None:
        await put(backend)
        assert await backend.records.update_status(SOURCE, "w1", 3, SourceStatus.STALE, T + 5, None)
        for late in (T + 4, T + 5):
            assert await backend.records.update_status(
                SOURCE, "w1", 3, SourceStatus.READY, late, None
            )
            assert await status_of(backend) == (SourceStatus.STALE, T + 5)
        assert await backend.records.update_status(SOURCE, "w1", 3, SourceStatus.READY, T + 6, None)
        assert await status_of(backend) == (SourceStatus.READY, T + 6)

    run(scenario)


def test_of_two_updates_in_one_millisecond_stale_wins(run: Run) -> None:
    async def scenario(backend: MetadataBackend) -> None:
        await put(backend)
        assert await backend.records.update_status(SOURCE, "w1", 3, SourceStatus.READY, T, None)
        assert await status_of(backend) == (SourceStatus.READY, T)
        assert await backend.records.update_status(SOURCE, "w1", 3, SourceStatus.STALE, T, None)
        assert await status_of(backend) == (SourceStatus.STALE, T)

    run(scenario)


def test_heartbeats_that_race_leave_the_newest(run: Run) -> None:
    async def scenario(backend: MetadataBackend) -> None:
        await put(backend)
        beats = [
            backend.records.update_status(SOURCE, "w1", 3, SourceStatus.READY, T + step, step / 100)
            for step in (7, 30, 1, 29, 12, 30, 4)
        ]
        assert all(await asyncio.gather(*beats))
        [ref] = await backend.records.list(SourceQuery())
        assert (ref.updated_at_ms, ref.source_load) == (T + 30, 0.3)

    run(scenario)


def test_mark_stale_needs_the_version_that_was_read(run: Run) -> None:
    async def scenario(backend: MetadataBackend) -> None:
        store = backend.records
        await put(backend)
        published = await row_of(backend)
        await store.update_status(SOURCE, "w1", 3, SourceStatus.READY, T + 1, None)
        assert not await store.mark_stale(SOURCE, "w1", published.version)
        assert await status_of(backend) == (SourceStatus.READY, T + 1)
        ready = await row_of(backend)
        assert await store.mark_stale(SOURCE, "w1", ready.version)
        assert await status_of(backend) == (SourceStatus.STALE, T + 1)
        assert not await store.mark_stale(SOURCE, "w1", ready.version)
        stale = await row_of(backend)
        assert (stale.status, stale.updated_at_ms) == (SourceStatus.STALE, T + 1)
        assert stale.version not in (published.version, ready.version)
        assert not await store.mark_stale(SOURCE, "w1", stale.version)
        assert not await store.mark_stale(SOURCE, "w2", stale.version)

    run(scenario)


def test_delete_needs_the_version_that_was_read_if_one_is_given(run: Run) -> None:
    async def scenario(backend: MetadataBackend) -> None:
        store = backend.records
        await put(backend)
        await put(backend, "w2")
        published = await row_of(backend)
        await store.update_status(SOURCE, "w1", 3, SourceStatus.STALE, T + 1, None)
        stale = await row_of(backend)
        assert not await store.delete(SOURCE, "w1", published.version)
        assert await store.get(SOURCE, "w1") is not None
        assert await store.delete(SOURCE, "w1", stale.version)
        assert not await store.delete(SOURCE, "w1", stale.version)
        assert await store.get(SOURCE, "w1") is None
        assert await workers(backend) == ["w2"]
        assert await store.delete(SOURCE, "w2")
        assert await workers(backend) == []

    run(scenario)


def test_a_heartbeat_after_the_reaper_has_read_wins(run: Run) -> None:
    async def scenario(backend: MetadataBackend) -> None:
        store = backend.records
        await put(backend)
        stale = replace(RECORD, status=SourceStatus.STALE)
        await put(backend, "w2", stale)
        rows = [row async for row in store.scan()]
        for worker_id in ("w1", "w2"):
            assert await store.update_status(SOURCE, worker_id, 3, SourceStatus.READY, T + 9, None)
        for row in rows:
            assert not await store.mark_stale(SOURCE, row.worker_id, row.version)
            assert not await store.delete(SOURCE, row.worker_id, row.version)
        assert {row.status for row in await store.list(SourceQuery())} == {SourceStatus.READY}

    run(scenario)


def test_a_row_says_what_the_record_says(run: Run) -> None:
    identity = IDENTITY.with_fields(
        extra_parameters={"training_step": "7", "layout_signature": "abc"}
    )
    tensors = (TensorDescriptor("w", 1, 2, 3, "bfloat16"),)
    record = replace(RECORD, artifact=None, tensors=tensors, source_load=0.25)

    async def scenario(backend: MetadataBackend) -> None:
        await put(backend, record=record, identity=identity)
        row = await row_of(backend)
        assert row == summary_of(
            compute_mx_source_id(identity), "w1", identity, record, row.version
        )
        assert row.source_type is SourceType.TRITON_CACHE
        assert (row.training_step, row.layout_signature) == (7, "abc")
        assert row.version

    run(scenario)


def test_every_filter(run: Run) -> None:
    other = IDENTITY.with_fields(model_name="other", extra_parameters={"training_step": "12"})
    older = IDENTITY.with_fields(model_name="other", extra_parameters={"version": "3"})

    async def scenario(backend: MetadataBackend) -> None:
        await put(backend, "a", replace(RECORD, worker_rank=0, updated_at_ms=T + 5))
        await put(backend, "b", replace(RECORD, worker_rank=1, status=SourceStatus.READY))
        await put(backend, "c", RECORD, other)
        await put(backend, "d", RECORD, older)

        async def pass_(**filters: object) -> set[str]:
            return set(await workers(backend, SourceQuery(**filters)))  # type: ignore[arg-type]

        assert await pass_() == {"a", "b", "c", "d"}
        assert await pass_(mx_source_id=SOURCE) == {"a", "b"}
        assert await pass_(status=SourceStatus.READY) == {"b"}
        assert await pass_(model_name="other") == {"c", "d"}
        assert await pass_(worker_rank=0) == {"a"}
        assert await pass_(min_updated_at_ms=T + 1) == {"a"}
        assert await pass_(min_updated_at_ms=T + 5) == {"a"}
        assert await pass_(min_training_step=0) == {"c", "d"}
        assert await pass_(min_training_step=4) == {"c"}
        assert await pass_(mx_source_id=SOURCE, worker_rank=1, status=SourceStatus.READY) == {"b"}
        assert await pass_(model_name="nobody") == set()

    run(scenario)


def test_listings_are_newest_first_and_then_limited(run: Run) -> None:
    other = IDENTITY.with_fields(model_name="other")

    async def scenario(backend: MetadataBackend) -> None:
        for age, worker_id in enumerate(("c", "a", "b")):
            await put(backend, worker_id, replace(RECORD, updated_at_ms=T - age))
            await put(backend, worker_id, replace(RECORD, updated_at_ms=T - age), other)
        await backend.records.update_status(SOURCE, "a", 3, SourceStatus.READY, T + 9, None)
        rows = await backend.records.list(SourceQuery())
        ages = [row.updated_at_ms for row in rows]
        assert ages == [T + 9, T, T, T - 1, T - 2, T - 2]
        assert rows[0].worker_id == "a"
        assert rows[1].mx_source_id < rows[2].mx_source_id  # equally old: by their ids
        for limit in range(1, 6):
            assert await backend.records.list(SourceQuery(limit=limit)) == rows[:limit]
        for unlimited in (0, None, 100):
            assert await backend.records.list(SourceQuery(limit=unlimited)) == rows
        one = SourceQuery(mx_source_id=SOURCE)
        assert await workers(backend, one) == ["a", "c", "b"]

    run(scenario)


def test_a_source_that_lost_its_workers_is_found_again_when_one_publishes(run: Run) -> None:
    async def scenario(backend: MetadataBackend) -> None:
        by_model = SourceQuery(model_name=IDENTITY.model_name)
        for _ in range(2):
            await put(backend)
            assert await workers(backend, by_model) == ["w1"]
            assert await backend.records.delete(SOURCE, "w1")
            assert await workers(backend, by_model) == []
            assert await workers(backend, SourceQuery(mx_source_id=SOURCE)) == []

    run(scenario)


def test_a_silent_ready_record_counts_as_stale_before_filter_and_limit(run: Run) -> None:
    ready = replace(RECORD, status=SourceStatus.READY)

    async def scenario(backend: MetadataBackend) -> None:
        await put(backend, "a-silent", ready)
        await put(backend, "b-alive", replace(ready, updated_at_ms=T + 10))
        await put(backend, "c-starting", RECORD)
        fresh = SourceQuery(fresh_since_ms=T + 1)
        assert await workers(backend, replace(fresh, status=SourceStatus.READY, limit=1)) == [
            "b-alive"
        ]
        assert await workers(backend, replace(fresh, status=SourceStatus.STALE)) == ["a-silent"]
        assert [ref.status for ref in await backend.records.list(fresh)] == [
            SourceStatus.READY,
            SourceStatus.STALE,
            SourceStatus.INITIALIZING,
        ]
        stored = await backend.records.get(SOURCE, "a-silent")  # what is stored does not change
        assert stored is not None
        assert stored.record.status is SourceStatus.READY

    run(scenario)


def test_types_and_engines_without_a_name_are_kept_as_numbers(run: Run) -> None:
    later = IDENTITY.with_fields(mx_source_type=10, backend_framework=7)

    async def scenario(backend: MetadataBackend) -> None:
        await put(backend, identity=later)
        stored = await backend.records.get(compute_mx_source_id(later), "w1")
        assert stored is not None
        assert stored.identity == later

    run(scenario)


def test_scan_sees_every_record_of_many(run: Run) -> None:
    async def scenario(backend: MetadataBackend) -> None:
        expected = set()
        for number in range(150):  # more than one batch of hashes
            identity = IDENTITY.with_fields(model_name=f"model-{number // 2}")
            await put(backend, f"w{number}", identity=identity)
            expected.add((compute_mx_source_id(identity), f"w{number}"))
        seen = [(ref.mx_source_id, ref.worker_id) async for ref in backend.records.scan()]
        assert sorted(seen) == sorted(expected)

    run(scenario)


def test_ballots_are_replaced_only_by_a_writer_that_read_the_current_ones(run: Run) -> None:
    async def scenario(backend: MetadataBackend) -> None:
        assert await backend.ballots.get_ballots("g/1:triton") is None
        assert not await backend.ballots.replace_ballots("g/1:triton", b"old", b"new", 60)
        assert await backend.ballots.replace_ballots("g/1:triton", None, b"first \x00\xff", 60)
        assert not await backend.ballots.replace_ballots("g/1:triton", None, b"second", 60)
        assert await backend.ballots.replace_ballots("g/1:triton", b"first \x00\xff", b"second", 60)
        assert await backend.ballots.get_ballots("g/1:triton") == b"second"
        assert await backend.ballots.get_ballots("g:triton") is None
        assert await backend.records.list(SourceQuery()) == []
        assert [ref async for ref in backend.records.scan()] == []

    run(scenario)


def test_of_writers_that_race_one_wins(run: Run) -> None:
    async def scenario(backend: MetadataBackend) -> None:
        texts = [str(number).encode() for number in range(20)]
        writes = (backend.ballots.replace_ballots("g", None, text, 60) for text in texts)
        won = await asyncio.gather(*writes)
        assert won.count(True) == 1
        assert await backend.ballots.get_ballots("g") == texts[won.index(True)]

    run(scenario)


def test_ballots_expire(run: Run) -> None:
    async def scenario(backend: MetadataBackend) -> None:
        assert await backend.ballots.replace_ballots("g", None, b"old", 0.02)
        assert await backend.ballots.replace_ballots("h", None, b"kept", 60)
        await asyncio.sleep(0.05)
        assert await backend.ballots.get_ballots("g") is None
        assert await backend.ballots.replace_ballots("g", None, b"new", 60)
        assert await backend.ballots.get_ballots("h") == b"kept"

    run(scenario)


def test_close_twice(run: Run) -> None:
    async def scenario(backend: MetadataBackend) -> None:
        await backend.close()

    run(scenario)
