"""The Redis backend on a real Valkey: the layout byte by byte, damage, and every kind of outage."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

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
from mx_artifacts.metadata.redis import RedisBackend
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


def over(url: str, scenario: Callable[[RedisBackend], Awaitable[None]]) -> None:
    async def main() -> None:
        backend = RedisBackend(url)
        try:
            await scenario(backend)
        finally:
            await backend.close()

    asyncio.run(main())


async def put(backend: RedisBackend, worker_id: str = "w1") -> None:
    await backend.put(SOURCE, worker_id, IDENTITY, RECORD, PodIdentity())


async def beat(backend: RedisBackend, at: int, status: SourceStatus = SourceStatus.READY) -> bool:
    return await backend.update_status(SOURCE, "w1", 3, status, at, 0.1)


async def listed(backend: RedisBackend) -> list[str]:
    return [ref.worker_id for ref in await backend.list(SourceQuery())]


# --- layout --------------------------------------------------------------------------------------


def test_the_layout_is_the_documented_one(valkey: RedisProcess) -> None:
    over(valkey.url, put)
    assert set(valkey.client.keys()) == {INDEX.encode(), WORKER.encode()}
    index = valkey.client.hgetall(INDEX)
    assert json.loads(index.pop(b"__attributes__")) == IDENTITY.as_dict()
    assert index == {b"w1": b"3"}
    fields = valkey.client.hgetall(WORKER)
    assert set(fields) == {b"3", b"status:3"}
    record = json.loads(fields[b"3"])
    assert record["artifact_source"]["total_size"] == "5"
    assert (record["backend_type"], record["tensors"], record["nixl_metadata"]) == ("none", [], [])


def test_a_heartbeat_writes_under_200_bytes_and_not_the_record(valkey: RedisProcess) -> None:
    over(valkey.url, put)
    before = valkey.client.hget(WORKER, "3")
    index = valkey.client.hgetall(INDEX)

    async def scenario(backend: RedisBackend) -> None:
        assert await beat(backend, T + 1)

    over(valkey.url, scenario)
    assert valkey.client.hget(WORKER, "3") == before
    assert valkey.client.hgetall(INDEX) == index
    small = valkey.client.hget(WORKER, "status:3")
    assert len(small) < 200
    assert json.loads(small) == {
        "worker_rank": 3,
        "status": 2,
        "updated_at": T + 1,
        "accelerator": "cuda",
        "source_load": 0.1,
    }


def test_no_key_expires(valkey: RedisProcess) -> None:
    async def scenario(backend: RedisBackend) -> None:
        await put(backend)
        await beat(backend, T + 1)
        await backend.mark_stale(SOURCE, "w1", 3, T + 1)

    over(valkey.url, scenario)
    assert [valkey.client.ttl(key) for key in (INDEX, WORKER)] == [-1, -1]


def test_the_last_worker_takes_its_source_along(valkey: RedisProcess) -> None:
    async def scenario(backend: RedisBackend) -> None:
        await put(backend)
        await put(backend, "w2")
        assert await backend.delete(SOURCE, "w1", T)
        assert valkey.client.exists(INDEX)
        assert await backend.delete(SOURCE, "w2", T)

    over(valkey.url, scenario)
    assert valkey.client.keys() == []


def test_records_of_a_deployed_server(valkey: RedisProcess) -> None:
    """Its index holds the small JSON; a record from before `status:` fields has none."""
    small = {"worker_rank": 3, "status": 2, "updated_at": T, "accelerator": "cuda"}
    small |= {"source_load": None, "topology": {"rack": "r1"}}
    record = {"worker_rank": 3, "status": 1, "updated_at": T, "accelerator": "cuda"}
    record |= {"tensors": [], "topology": {"rack": "r1"}}
    attributes = json.dumps({"model_name": "org/model", "mx_source_type": 4})
    valkey.client.hset(INDEX, mapping={"__attributes__": attributes, "w1": json.dumps(small)})
    valkey.client.hset(WORKER, "3", json.dumps(record))

    async def scenario(backend: RedisBackend) -> None:
        [ref] = await backend.list(SourceQuery())
        assert (ref.worker_rank, ref.status) == (3, SourceStatus.INITIALIZING)
        assert not await backend.mark_stale(SOURCE, "w1", 3, T + 1)
        assert await beat(backend, T + 1)
        [ref] = await backend.list(SourceQuery())
        assert (ref.status, ref.updated_at_ms) == (SourceStatus.READY, T + 1)
        assert (ref.accelerator, ref.topology) == ("cuda", {"rack": "r1"})
        assert await backend.mark_stale(SOURCE, "w1", 3, T + 1)
        assert not await backend.delete(SOURCE, "w1", T)
        assert await backend.delete(SOURCE, "w1", T + 1)

    over(valkey.url, scenario)
    assert valkey.client.keys() == []


def test_topology_in_a_deployed_servers_small_json_survives_heartbeats(
    valkey: RedisProcess,
) -> None:
    over(valkey.url, put)
    small = {"worker_rank": 3, "status": 2, "updated_at": T, "topology": {"rack": "r1"}}
    valkey.client.hset(WORKER, "status:3", json.dumps(small))

    async def scenario(backend: RedisBackend) -> None:
        assert await beat(backend, T + 1)

    over(valkey.url, scenario)
    assert json.loads(valkey.client.hget(WORKER, "status:3"))["topology"] == {"rack": "r1"}


def test_a_record_half_lost_is_unknown_so_that_its_worker_publishes_again(
    valkey: RedisProcess,
) -> None:
    async def scenario(backend: RedisBackend) -> None:
        for key, field in ((INDEX, "w1"), (INDEX, "__attributes__"), (WORKER, "3")):
            await put(backend)
            assert await beat(backend, T + 1)
            valkey.client.hdel(key, field)
            assert not await beat(backend, T + 2)
        await put(backend)
        assert await beat(backend, T + 3)
        assert await listed(backend) == ["w1"]

    over(valkey.url, scenario)


# --- damage --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "field", "value"),
    [
        (WORKER, "3", b"garbage"),
        (WORKER, "3", b"\xff\xfe"),
        (WORKER, "status:3", b"{"),
        (INDEX, "w1", b"three"),
    ],
)
def test_a_poison_record_is_skipped_with_a_warning_and_others_are_listed(
    valkey: RedisProcess,
    caplog: pytest.LogCaptureFixture,
    key: str,
    field: str,
    value: bytes,
) -> None:
    async def scenario(backend: RedisBackend) -> None:
        await put(backend)
        await put(backend, "w2")
        valkey.client.hset(key, field, value)
        with caplog.at_level(logging.WARNING):
            assert await listed(backend) == ["w2"]
            assert [ref.worker_id async for ref in backend.scan()] == ["w2"]
            assert await backend.get(SOURCE, "w1") is None
        assert f"b'w1' of source {SOURCE}" in caplog.text
        assert "cannot be read" in caplog.text
        await put(backend)  # its worker heals it
        assert await listed(backend) == ["w1", "w2"]

    over(valkey.url, scenario)


def test_a_damaged_small_part_is_healed_by_a_heartbeat(valkey: RedisProcess) -> None:
    async def scenario(backend: RedisBackend) -> None:
        await put(backend)
        valkey.client.hset(WORKER, "status:3", "garbage")
        assert await beat(backend, T + 1)
        [ref] = await backend.list(SourceQuery())
        assert (ref.status, ref.accelerator) == (SourceStatus.READY, "cuda")

    over(valkey.url, scenario)


def test_a_key_of_another_type_is_skipped(
    valkey: RedisProcess, caplog: pytest.LogCaptureFixture
) -> None:
    valkey.client.set("mx:source:0123456789abcdef", "not a hash")
    valkey.client.set("mx:source:not-a-source-id!", "nobody's")

    async def scenario(backend: RedisBackend) -> None:
        await put(backend)
        with caplog.at_level(logging.WARNING):
            assert await listed(backend) == ["w1"]
        assert "mx:source:0123456789abcdef: it is not a hash" in caplog.text
        assert "not-a-source-id" not in caplog.text

    over(valkey.url, scenario)


# --- outages -------------------------------------------------------------------------------------


async def assert_unavailable(backend: RedisBackend, message: str, *, reads: bool = True) -> None:
    """Check that every method says so; with `reads` False only those that write."""

    async def scan() -> None:
        async for _ in backend.scan():
            pass

    calls = [put(backend), beat(backend, T + 9), backend.delete(SOURCE, "w1")]
    calls += [backend.mark_stale(SOURCE, "w1", 3, T)]
    if reads:
        calls += [backend.ping(), backend.start(), scan(), backend.get(SOURCE, "w1")]
        calls += [backend.list(SourceQuery()), backend.list(SourceQuery(mx_source_id=SOURCE))]
    for call in calls:
        with pytest.raises(BackendUnavailableError, match=message) as caught:
            await call
        assert caught.value.retryable
        assert caught.value.hint()


def test_down_and_back_empty(valkey: RedisProcess) -> None:
    async def scenario(backend: RedisBackend) -> None:
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

    async def scenario(backend: RedisBackend) -> None:
        with pytest.raises(BackendUnavailableError, match="cannot be reached"):
            await backend.start()
        valkey.start()
        await put(backend)
        assert await listed(backend) == ["w1"]

    over(valkey.url, scenario)


def test_restarted_between_two_calls_is_not_noticed(valkey: RedisProcess) -> None:
    async def scenario(backend: RedisBackend) -> None:
        await backend.start()
        valkey.kill()
        valkey.start()
        assert await listed(backend) == []

    over(valkey.url, scenario)


def test_frozen(valkey: RedisProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mx_artifacts.metadata.redis.TIMEOUT_SECONDS", 0.2)

    async def scenario(backend: RedisBackend) -> None:
        await put(backend)
        with valkey.frozen():
            with pytest.raises(BackendUnavailableError, match="does not answer in time"):
                await backend.list(SourceQuery())
            with pytest.raises(BackendUnavailableError, match="does not answer in time"):
                await beat(backend, T + 1)
        assert await listed(backend) == ["w1"]

    over(valkey.url, scenario)


def test_a_read_only_replica_answers_reads_and_refuses_writes(valkey: RedisProcess) -> None:
    async def scenario(backend: RedisBackend) -> None:
        await put(backend)
        valkey.client.replicaof("127.0.0.1", "1")  # nobody: it keeps what it has
        await assert_unavailable(backend, "read-only replica", reads=False)
        assert await listed(backend) == ["w1"]
        valkey.client.replicaof("NO", "ONE")
        assert await beat(backend, T + 1)

    over(valkey.url, scenario)


def test_out_of_memory(valkey: RedisProcess) -> None:
    async def scenario(backend: RedisBackend) -> None:
        await put(backend)
        valkey.client.config_set("maxmemory-policy", "noeviction")
        valkey.client.config_set("maxmemory", 1)
        for call in (put(backend, "w2"), beat(backend, T + 1)):
            with pytest.raises(BackendUnavailableError, match="out of memory"):
                await call
        assert await listed(backend) == ["w1"]
        assert await backend.delete(SOURCE, "w1", T)  # must work, or memory never gets free
        valkey.client.config_set("maxmemory", 0)
        await put(backend, "w2")
        assert await listed(backend) == ["w2"]

    over(valkey.url, scenario)


def test_a_wrong_password_is_named(valkey: RedisProcess) -> None:
    async def scenario(backend: RedisBackend) -> None:
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
        (b"-NOPERM this user has no permissions\r\n", "does not allow this user"),
        (b"-MASTERDOWN Link with MASTER is down\r\n", "failed"),
        (b"-ERR max number of clients reached\r\n", "cannot be reached"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "failed|cannot be reached"),
    ],
)
def test_each_refusal_has_its_own_message(line: bytes, message: str) -> None:
    async def scenario(backend: RedisBackend) -> None:
        await assert_unavailable(backend, message)

    with answering(line) as url:
        over(url, scenario)
