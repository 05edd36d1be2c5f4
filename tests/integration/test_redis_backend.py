"""The Redis backend on a real Valkey: the layout byte by byte, damage, and every kind of outage."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from mx_artifacts.core.identity import SourceIdentity, SourceType, compute_mx_source_id
from mx_artifacts.core.sources import (
    ArtifactSummary,
    PodIdentity,
    SourceQuery,
    SourceStatus,
    WorkerRecord,
)
from mx_artifacts.errors import BackendUnavailableError
from mx_artifacts.metadata.base import MetadataBackend
from mx_artifacts.metadata.redis_connection import Command, RedisConnection
from mx_artifacts.metadata.registry import create_backend
from mx_artifacts.metadata.summary import SummaryRow
from tests.support.valkey import RedisProcess, running, valkey_binary

T = 1_700_000_000_000
IDENTITY = SourceIdentity(mx_source_type=SourceType.TRITON_CACHE, model_name="org/model")
SOURCE = compute_mx_source_id(IDENTITY)
INDEX, WORKER = f"mx:source:{SOURCE}", f"mx:source:{SOURCE}:w1"
RECORD = WorkerRecord(
    worker_rank=3, updated_at_ms=T, accelerator="cuda", artifact=ArtifactSummary("a" * 64, 5, 1, 1)
)


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    with running(valkey_binary(), tmp_path_factory.mktemp("valkey")) as process:
        yield process


@pytest.fixture
def valkey(process: RedisProcess) -> RedisProcess:
    """An empty Valkey that answers."""
    process.reset()
    return process


def over(url: str, scenario: Callable[[MetadataBackend], Awaitable[None]]) -> None:
    async def main() -> None:
        backend = create_backend(url)
        try:
            await scenario(backend)
        finally:
            await backend.close()

    asyncio.run(main())


async def put(backend: MetadataBackend, worker_id: str = "w1") -> None:
    await backend.records.put(SOURCE, worker_id, IDENTITY, RECORD, PodIdentity())


async def beat(
    backend: MetadataBackend, at: int, status: SourceStatus = SourceStatus.READY
) -> bool:
    return await backend.records.update_status(SOURCE, "w1", 3, status, at, 0.1)


async def listed(backend: MetadataBackend) -> list[str]:
    return [ref.worker_id for ref in await backend.records.list(SourceQuery())]


async def row_of(backend: MetadataBackend, worker_id: str = "w1") -> SummaryRow:
    [row] = [row for row in await backend.records.list(SourceQuery()) if row.worker_id == worker_id]
    return row


# --- layout --------------------------------------------------------------------------------------


def test_the_layout_is_the_documented_one(valkey: RedisProcess) -> None:
    over(valkey.url, put)
    assert set(valkey.client.keys()) == {INDEX.encode(), WORKER.encode()}
    index = valkey.client.hgetall(INDEX)
    assert json.loads(index.pop(b"__attributes__")) == IDENTITY.as_dict()
    fields = valkey.client.hgetall(WORKER)
    assert set(fields) == {b"3", b"status:3"}
    assert index == {b"w1": fields[b"status:3"]}
    assert json.loads(index[b"w1"]) == {
        "worker_rank": 3,
        "status": 1,
        "updated_at": T,
        "accelerator": "cuda",
        "topology": {},
    }
    record = json.loads(fields[b"3"])
    assert record["artifact_source"]["total_size"] == "5"
    assert (record["backend_type"], record["tensors"], record["nixl_metadata"]) == ("none", [], [])


def summaries(valkey: RedisProcess) -> list[bytes]:
    """Return what is stored at both places of a worker's summary."""
    found = valkey.client.hget(WORKER, "status:3"), valkey.client.hget(INDEX, "w1")
    stored = [each for each in found if isinstance(each, bytes)]
    assert len(stored) == len(found)
    return stored


def test_a_heartbeat_refreshes_both_summaries_and_not_the_record(valkey: RedisProcess) -> None:
    over(valkey.url, put)
    before = valkey.client.hget(WORKER, "3")

    async def scenario(backend: MetadataBackend) -> None:
        assert await beat(backend, T + 1)

    over(valkey.url, scenario)
    assert valkey.client.hget(WORKER, "3") == before
    written = summaries(valkey)
    for text in written:
        assert json.loads(text) == {
            "worker_rank": 3,
            "status": 2,
            "updated_at": T + 1,
            "accelerator": "cuda",
            "topology": {},
            "source_load": 0.1,
        }
    assert sum(map(len, written)) < 300


def test_a_heartbeat_is_one_round_trip(
    valkey: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = []
    send = RedisConnection.send

    async def counted(
        self: RedisConnection, commands: Sequence[Command], *, atomic: bool = False
    ) -> Sequence[object]:
        sent.append(commands)
        return await send(self, commands, atomic=atomic)

    async def scenario(backend: MetadataBackend) -> None:
        await put(backend)
        assert await beat(backend, T + 1)
        monkeypatch.setattr(RedisConnection, "send", counted)
        assert await beat(backend, T + 2)
        assert len(sent) == 1
        valkey.client.script_flush()  # as a restart does
        assert await beat(backend, T + 3)
        assert (await row_of(backend)).updated_at_ms == T + 3

    over(valkey.url, scenario)


def test_no_key_expires(valkey: RedisProcess) -> None:
    async def scenario(backend: MetadataBackend) -> None:
        await put(backend)
        await beat(backend, T + 1)
        await backend.records.mark_stale(SOURCE, "w1", (await row_of(backend)).version)

    over(valkey.url, scenario)
    assert [valkey.client.ttl(key) for key in (INDEX, WORKER)] == [-1, -1]


def test_the_last_worker_takes_its_source_along(valkey: RedisProcess) -> None:
    async def scenario(backend: MetadataBackend) -> None:
        await put(backend)
        await put(backend, "w2")
        version = (await row_of(backend)).version
        assert await backend.records.delete(SOURCE, "w1", version)
        assert valkey.client.exists(INDEX)
        assert await backend.records.delete(SOURCE, "w2", version)

    over(valkey.url, scenario)
    assert valkey.client.keys() == []


def put_as_reference(valkey: RedisProcess, entry: str, status: str | None = None) -> None:
    """Write a record as servers of the reference do, `entry` into the index."""
    record = {"worker_rank": 3, "status": 1, "updated_at": T, "accelerator": "cuda"}
    record |= {"tensors": [], "topology": {"rack": "r1"}}
    attributes = json.dumps({"model_name": "org/model", "mx_source_type": 4})
    valkey.client.hset(INDEX, mapping={"__attributes__": attributes, "w1": entry})
    valkey.client.hset(WORKER, "3", json.dumps(record))
    if status is not None:
        valkey.client.hset(WORKER, "status:3", status)


REFERENCE_SUMMARY = json.dumps(
    {"worker_rank": 3, "status": 2, "updated_at": T, "accelerator": "cuda"}
    | {"source_load": None, "topology": {"rack": "r1"}}
)


def test_a_record_of_a_reference_server_is_listed_and_kept_up_to_date(valkey: RedisProcess) -> None:
    put_as_reference(valkey, REFERENCE_SUMMARY, REFERENCE_SUMMARY)

    async def scenario(backend: MetadataBackend) -> None:
        row = await row_of(backend)
        assert (row.worker_rank, row.status, row.updated_at_ms) == (3, SourceStatus.READY, T)
        assert (row.accelerator, row.topology) == ("cuda", {"rack": "r1"})
        assert (row.source_type, row.source_load) == (SourceType.TRITON_CACHE, None)
        assert await beat(backend, T + 1)
        assert not await backend.records.mark_stale(SOURCE, "w1", row.version)
        assert not await backend.records.delete(SOURCE, "w1", row.version)
        row = await row_of(backend)
        assert (row.status, row.updated_at_ms, row.source_load) == (SourceStatus.READY, T + 1, 0.1)
        assert (row.accelerator, row.topology) == ("cuda", {"rack": "r1"})

    over(valkey.url, scenario)
    written = summaries(valkey)
    for text in map(json.loads, written):
        assert text["topology"] == {"rack": "r1"}
        assert text["updated_at"] == T + 1

    async def reap(backend: MetadataBackend) -> None:
        assert await backend.records.mark_stale(SOURCE, "w1", (await row_of(backend)).version)
        stale = await row_of(backend)
        assert (stale.status, stale.updated_at_ms) == (SourceStatus.STALE, T + 1)
        assert await backend.records.delete(SOURCE, "w1", stale.version)

    over(valkey.url, reap)
    assert valkey.client.keys() == []


def test_a_record_of_an_older_server_is_read_for_its_row(valkey: RedisProcess) -> None:
    """Its index says the rank only, and its record has no `status:` field beside it."""
    put_as_reference(valkey, "3")

    async def scenario(backend: MetadataBackend) -> None:
        row = await row_of(backend)
        assert (row.worker_rank, row.status) == (3, SourceStatus.INITIALIZING)
        assert (row.accelerator, row.topology) == ("cuda", {"rack": "r1"})
        assert await beat(backend, T + 1)
        assert not await backend.records.mark_stale(SOURCE, "w1", row.version)
        row = await row_of(backend)
        assert (row.status, row.updated_at_ms) == (SourceStatus.READY, T + 1)
        assert (row.accelerator, row.topology) == ("cuda", {"rack": "r1"})
        assert valkey.client.hget(INDEX, "w1") == b"3"  # what an older server understands
        assert await backend.records.mark_stale(SOURCE, "w1", row.version)
        assert not await backend.records.delete(SOURCE, "w1", row.version)
        assert await backend.records.delete(SOURCE, "w1", (await row_of(backend)).version)

    over(valkey.url, scenario)
    assert valkey.client.keys() == []


def test_a_listing_reads_no_record(valkey: RedisProcess) -> None:
    async def scenario(backend: MetadataBackend) -> None:
        await put(backend)
        await put(backend, "w2")
        valkey.client.config_resetstat()
        rows = await backend.records.list(SourceQuery(status=SourceStatus.INITIALIZING))
        assert {row.worker_id for row in rows} == {"w1", "w2"}
        assert valkey.client.info("commandstats")["cmdstat_hgetall"]["calls"] == 1

    over(valkey.url, scenario)


def test_a_listing_by_model_opens_no_other_index(valkey: RedisProcess) -> None:
    async def scenario(backend: MetadataBackend) -> None:
        await put(backend)
        for number in range(20):
            identity = IDENTITY.with_fields(model_name=f"other-{number}")
            source_id = compute_mx_source_id(identity)
            await backend.records.put(source_id, "w", identity, RECORD, PodIdentity())
        valkey.client.config_resetstat()
        rows = await backend.records.list(SourceQuery(model_name=IDENTITY.model_name))
        assert [row.worker_id for row in rows] == ["w1"]
        assert valkey.client.info("commandstats")["cmdstat_hgetall"]["calls"] == 1

    over(valkey.url, scenario)


def test_a_record_half_lost_is_unknown_so_that_its_worker_publishes_again(
    valkey: RedisProcess,
) -> None:
    async def scenario(backend: MetadataBackend) -> None:
        for key, field in ((INDEX, "w1"), (INDEX, "__attributes__"), (WORKER, "3")):
            await put(backend)
            assert await beat(backend, T + 1)
            valkey.client.hdel(key, field)
            assert not await beat(backend, T + 2)
        await put(backend)
        assert await beat(backend, T + 3)
        assert await listed(backend) == ["w1"]

    over(valkey.url, scenario)


# --- one of the two keys is behind ---------------------------------------------------------------


def test_the_reaper_spares_a_record_whose_heartbeat_has_not_reached_the_index(
    valkey: RedisProcess,
) -> None:
    async def scenario(backend: MetadataBackend) -> None:
        await put(backend)
        row = await row_of(backend)
        fresh = {"worker_rank": 3, "status": 2, "updated_at": T + 1}
        valkey.client.hset(WORKER, "status:3", json.dumps(fresh))
        assert not await backend.records.mark_stale(SOURCE, "w1", row.version)
        assert not await backend.records.delete(SOURCE, "w1", row.version)
        assert await row_of(backend) == row

    over(valkey.url, scenario)


def test_the_reaper_spares_a_row_whose_heartbeat_has_not_reached_the_record(
    valkey: RedisProcess,
) -> None:
    async def scenario(backend: MetadataBackend) -> None:
        await put(backend)
        row = await row_of(backend)
        fresh = {"worker_rank": 3, "status": 2, "updated_at": T + 1}
        valkey.client.hset(INDEX, "w1", json.dumps(fresh))
        await backend.records.mark_stale(SOURCE, "w1", row.version)
        kept = await row_of(backend)
        assert (kept.status, kept.updated_at_ms) == (SourceStatus.READY, T + 1)
        assert await beat(backend, T + 2)
        await put(backend)
        valkey.client.hset(INDEX, "w1", json.dumps(fresh))
        assert await backend.records.delete(SOURCE, "w1", row.version)
        assert await listed(backend) == ["w1"]
        assert not await beat(backend, T + 2)  # so that its worker publishes again

    over(valkey.url, scenario)


def test_the_reaper_removes_a_row_without_a_record(valkey: RedisProcess) -> None:
    async def scenario(backend: MetadataBackend) -> None:
        await put(backend)
        valkey.client.delete(WORKER)
        assert await backend.records.get(SOURCE, "w1") is None
        assert await backend.records.mark_stale(SOURCE, "w1", (await row_of(backend)).version)
        row = await row_of(backend)
        assert row.status is SourceStatus.STALE
        assert await backend.records.delete(SOURCE, "w1", row.version)

    over(valkey.url, scenario)
    assert valkey.client.keys() == []


# --- damage --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entry",
    [
        b"three",
        b"{",
        b"\xff\xfe",
        b'{"updated_at":-1}',
        b'{"updated_at":1,"topology":{"rack":5}}',
    ],
)
def test_a_poison_row_is_skipped_with_a_warning_and_others_are_listed(
    valkey: RedisProcess, caplog: pytest.LogCaptureFixture, entry: bytes
) -> None:
    async def scenario(backend: MetadataBackend) -> None:
        await put(backend)
        await put(backend, "w2")
        valkey.client.hset(INDEX, "w1", entry)
        with caplog.at_level(logging.WARNING):
            assert await listed(backend) == ["w2"]
            assert [ref.worker_id async for ref in backend.records.scan()] == ["w2"]
        assert f"b'w1' of source {SOURCE}" in caplog.text
        assert "cannot be read" in caplog.text
        await put(backend)  # its worker heals it
        assert await listed(backend) == ["w1", "w2"]

    over(valkey.url, scenario)


def test_a_worker_id_that_is_not_text_is_skipped(valkey: RedisProcess) -> None:
    async def scenario(backend: MetadataBackend) -> None:
        await put(backend)
        valkey.client.hset(INDEX, b"\xff", b"3")
        assert await listed(backend) == ["w1"]

    over(valkey.url, scenario)


@pytest.mark.parametrize(
    ("field", "value"), [("3", b"garbage"), ("3", b"\xff\xfe"), ("status:3", b"{")]
)
def test_a_poison_record_is_listed_and_not_given(
    valkey: RedisProcess, caplog: pytest.LogCaptureFixture, field: str, value: bytes
) -> None:
    async def scenario(backend: MetadataBackend) -> None:
        await put(backend)
        await put(backend, "w2")
        valkey.client.hset(WORKER, field, value)
        assert await listed(backend) == ["w1", "w2"]
        with caplog.at_level(logging.WARNING):
            assert await backend.records.get(SOURCE, "w1") is None
        assert "cannot be read" in caplog.text
        assert await backend.records.get(SOURCE, "w2") is not None
        await put(backend)  # its worker heals it
        assert await backend.records.get(SOURCE, "w1") is not None

    over(valkey.url, scenario)


def test_the_record_of_an_older_server_is_skipped_when_it_cannot_be_read(
    valkey: RedisProcess, caplog: pytest.LogCaptureFixture
) -> None:
    put_as_reference(valkey, "3")
    valkey.client.hset(WORKER, "3", b"garbage")

    async def scenario(backend: MetadataBackend) -> None:
        await put(backend, "w2")
        with caplog.at_level(logging.WARNING):
            assert await listed(backend) == ["w2"]
        assert "cannot be read" in caplog.text

    over(valkey.url, scenario)


def test_a_source_whose_identity_cannot_be_read_hides_no_other(
    valkey: RedisProcess, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(backend: MetadataBackend) -> None:
        await put(backend)
        valkey.client.hset("mx:source:" + "0" * 16, "w9", "0")
        with caplog.at_level(logging.WARNING):
            assert await listed(backend) == ["w1"]
            by_model = SourceQuery(model_name=IDENTITY.model_name)
            assert len(await backend.records.list(by_model)) == 1
        assert "identity cannot be read" in caplog.text

    over(valkey.url, scenario)


def test_a_damaged_summary_is_healed_by_a_heartbeat(valkey: RedisProcess) -> None:
    async def scenario(backend: MetadataBackend) -> None:
        await put(backend)
        valkey.client.hset(WORKER, "status:3", "garbage")
        assert await beat(backend, T + 1)
        [ref] = await backend.records.list(SourceQuery())
        assert (ref.status, ref.accelerator) == (SourceStatus.READY, "cuda")

    over(valkey.url, scenario)


def test_a_key_of_another_type_is_skipped(
    valkey: RedisProcess, caplog: pytest.LogCaptureFixture
) -> None:
    valkey.client.set("mx:source:0123456789abcdef", "not a hash")
    valkey.client.set("mx:source:not-a-source-id!", "nobody's")

    async def scenario(backend: MetadataBackend) -> None:
        await put(backend)
        with caplog.at_level(logging.WARNING):
            assert await listed(backend) == ["w1"]
        assert "mx:source:0123456789abcdef: it is not a hash" in caplog.text
        assert "not-a-source-id" not in caplog.text

    over(valkey.url, scenario)


# --- outages -------------------------------------------------------------------------------------


async def assert_unavailable(backend: MetadataBackend, message: str, *, reads: bool = True) -> None:
    """Check that every method says so; with `reads` False only those that write."""

    async def scan() -> None:
        async for _ in backend.records.scan():
            pass

    calls: list[Coroutine[Any, Any, object]] = [
        put(backend),
        beat(backend, T + 9),
        backend.records.delete(SOURCE, "w1"),
    ]
    version = f"3:{T}:1"  # of what `put` writes
    calls += [
        backend.records.mark_stale(SOURCE, "w1", version),
        backend.records.delete(SOURCE, "w1", version),
    ]
    if reads:
        calls += [backend.ping(), backend.start(), scan(), backend.records.get(SOURCE, "w1")]
        queries = SourceQuery(), SourceQuery(mx_source_id=SOURCE), SourceQuery(model_name="m")
        calls += [backend.records.list(query) for query in queries]
    for call in calls:
        with pytest.raises(BackendUnavailableError, match=message) as caught:
            await call
        assert caught.value.retryable
        assert caught.value.hint()


def test_down_and_back_empty(valkey: RedisProcess) -> None:
    async def scenario(backend: MetadataBackend) -> None:
        await backend.start()
        await put(backend)
        valkey.kill()
        await assert_unavailable(backend, "cannot be reached")
        valkey.start()
        assert await listed(backend) == []
        assert not await beat(backend, T + 1)
        await put(backend)
        assert await listed(backend) == ["w1"]

    over(valkey.url, scenario)


def test_down_at_start(valkey: RedisProcess) -> None:
    valkey.kill()

    async def scenario(backend: MetadataBackend) -> None:
        with pytest.raises(BackendUnavailableError, match="cannot be reached"):
            await backend.start()
        valkey.start()
        await put(backend)
        assert await listed(backend) == ["w1"]

    over(valkey.url, scenario)


def test_restarted_between_two_calls_is_not_noticed(valkey: RedisProcess) -> None:
    async def scenario(backend: MetadataBackend) -> None:
        await backend.start()
        valkey.kill()
        valkey.start()
        assert await listed(backend) == []

    over(valkey.url, scenario)


def test_frozen(valkey: RedisProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mx_artifacts.metadata.redis_connection.TIMEOUT_SECONDS", 0.2)

    async def scenario(backend: MetadataBackend) -> None:
        await put(backend)
        with valkey.frozen():
            with pytest.raises(BackendUnavailableError, match="does not answer in time"):
                await backend.records.list(SourceQuery())
            with pytest.raises(BackendUnavailableError, match="does not answer in time"):
                await beat(backend, T + 1)
        assert await listed(backend) == ["w1"]

    over(valkey.url, scenario)


def test_a_read_only_replica_answers_reads_and_refuses_writes(valkey: RedisProcess) -> None:
    async def scenario(backend: MetadataBackend) -> None:
        await put(backend)
        valkey.client.replicaof("127.0.0.1", "1")  # nobody: it keeps what it has
        await assert_unavailable(backend, "read-only replica", reads=False)
        assert await listed(backend) == ["w1"]
        valkey.client.replicaof("NO", "ONE")
        assert await beat(backend, T + 1)

    over(valkey.url, scenario)


def test_out_of_memory(valkey: RedisProcess) -> None:
    async def scenario(backend: MetadataBackend) -> None:
        await put(backend)
        valkey.client.config_set("maxmemory-policy", "noeviction")
        valkey.client.config_set("maxmemory", 1)
        for call in (put(backend, "w2"), beat(backend, T + 1)):
            with pytest.raises(BackendUnavailableError, match="out of memory"):
                await call
        assert await listed(backend) == ["w1"]
        version = (await row_of(backend)).version
        assert await backend.records.delete(SOURCE, "w1", version)  # or memory never gets free
        valkey.client.config_set("maxmemory", 0)
        await put(backend, "w2")
        assert await listed(backend) == ["w2"]

    over(valkey.url, scenario)


def test_a_wrong_password_is_named(valkey: RedisProcess) -> None:
    async def scenario(backend: MetadataBackend) -> None:
        await assert_unavailable(backend, "refuses the user or password")

    over(valkey.url.replace("//", "//nobody:wrong@"), scenario)


@contextmanager
def answering(line: bytes) -> Iterator[str]:
    """A Redis that answers every command with `line`."""

    def serve(connection: socket.socket) -> None:
        with connection, suppress(ConnectionError):
            while data := connection.recv(65536):
                # one line for each command: an array header starts each
                connection.sendall(line * data.count(b"*"))

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=serve, args=(connection,))
            thread.start()
            threads.append(thread)

    threads: list[threading.Thread] = []
    listener = socket.create_server(("127.0.0.1", 0))
    acceptor = threading.Thread(target=accept)
    acceptor.start()
    try:
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in (acceptor, *threads):
            thread.join(timeout=10)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"-LOADING Redis is loading the dataset in memory\r\n", "still loading"),
        (b"-MISCONF Redis is configured to save RDB snapshots\r\n", "cannot save to its disk"),
        (b"-NOAUTH Authentication required.\r\n", "refuses the user or password"),
        (b"-NOPERM this user has no permissions\r\n", "does not give this user"),
        (b"-MASTERDOWN Link with MASTER is down\r\n", "failed"),
        (b"-ERR max number of clients reached\r\n", "cannot be reached"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "failed|cannot be reached"),
    ],
)
def test_each_refusal_has_its_own_message(line: bytes, message: str) -> None:
    async def scenario(backend: MetadataBackend) -> None:
        await assert_unavailable(backend, message)

    with answering(line) as url:
        over(url, scenario)
