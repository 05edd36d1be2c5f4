"""The central server as a real gRPC server, seen through CentralClient and plain gRPC."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from mx_artifacts import __version__
from mx_artifacts.client.central import CentralClient
from mx_artifacts.core.identity import SourceIdentity, SourceType, compute_mx_source_id
from mx_artifacts.core.sources import (
    ArtifactSummary,
    PodIdentity,
    SourceQuery,
    SourceStatus,
    WorkerRecord,
)
from mx_artifacts.errors import (
    BackendUnavailableError,
    ConfigurationError,
    MxArtifactsError,
    RemoteError,
)
from mx_artifacts.observability.catalogue import ServerStarted
from mx_artifacts.observability.events import Event
from mx_artifacts.runtime.clock import FakeClock, unix_ms
from mx_artifacts.server.app import ServerConfig, serve
from mx_artifacts.wire.gen.model_express import p2p_pb2 as pb
from mx_artifacts.wire.gen.model_express import p2p_pb2_grpc
from tests.support.central import running_central
from tests.support.valkey import RedisProcess, running, valkey_binary

IDENTITY = SourceIdentity(mx_source_type=SourceType.TRITON_CACHE, model_name="org/model")
SOURCE = compute_mx_source_id(IDENTITY)
RECORD = WorkerRecord(
    worker_rank=1,
    agent_name="agent",
    worker_grpc_endpoint="node:6555",
    accelerator="cuda",
    topology={"rack": "r1"},
    artifact=ArtifactSummary("a" * 64, 1 << 40, 1, 7),
)
CONFIG = ServerConfig(
    port=0,
    heartbeat_timeout_seconds=90,
    gc_timeout_seconds=3600,
    reaper_scan_interval_seconds=0.02,  # of real time: the sweeps judge by the test's clock
)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@contextmanager
def client_of(address: str, timeout_seconds: float = 10) -> Iterator[CentralClient]:
    with closing(CentralClient(address, timeout_seconds=timeout_seconds)) as client:
        yield client


@pytest.fixture
def quiet() -> ServerConfig:
    """A server whose reaper does not sweep while a test runs."""
    return replace(CONFIG, reaper_scan_interval_seconds=3600)


@pytest.fixture
def client(quiet: ServerConfig, clock: FakeClock) -> Iterator[CentralClient]:
    with running_central(quiet, clock) as address, client_of(address) as client:
        yield client


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    with running(valkey_binary(), tmp_path_factory.mktemp("valkey")) as process:
        yield process


@pytest.fixture
def valkey(process: RedisProcess) -> RedisProcess:
    process.reset()
    return process


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until `condition` holds; a bound far above what any machine needs."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "never happened"
        time.sleep(0.02)


def workers(client: CentralClient, **filters: object) -> set[str]:
    query = SourceQuery(**filters)  # type: ignore[arg-type]
    return {ref.worker_id for ref in client.list_sources(query)}


def beat(client: CentralClient, worker_id: str = "w1", rank: int = 1) -> bool:
    return client.update_status(SOURCE, worker_id, rank, SourceStatus.READY)


# --- records -------------------------------------------------------------------------------------


def test_the_life_of_a_record(client: CentralClient, clock: FakeClock) -> None:
    forged = replace(RECORD, updated_at_ms=5)
    pod = PodIdentity("pod", "uid", "namespace")
    assert client.publish(IDENTITY, forged, "w1", pod) == SOURCE
    published = unix_ms(clock)

    stored = client.get_metadata(SOURCE, "w1")
    assert stored is not None
    assert stored.identity == IDENTITY
    assert stored.record == replace(RECORD, updated_at_ms=published)
    assert workers(client, status=SourceStatus.READY) == set()

    clock.advance(1)
    assert client.update_status(SOURCE, "w1", 1, SourceStatus.READY, 0.5)
    [ref] = client.list_sources(SourceQuery(status=SourceStatus.READY), IDENTITY)
    assert (ref.mx_source_id, ref.worker_id, ref.worker_rank) == (SOURCE, "w1", 1)
    assert (ref.model_name, ref.accelerator, ref.topology) == ("org/model", "cuda", {"rack": "r1"})
    assert (ref.updated_at_ms, ref.source_load) == (published + 1000, 0.5)
    assert ref.status is SourceStatus.READY

    assert client.update_status(SOURCE, "w1", 1, SourceStatus.STALE)
    assert workers(client, status=SourceStatus.READY) == set()
    assert workers(client, status=SourceStatus.STALE) == {"w1"}


def test_a_published_status_is_kept_and_none_becomes_initializing(client: CentralClient) -> None:
    client.publish(IDENTITY, replace(RECORD, status=SourceStatus.READY), "ready")
    client.publish(IDENTITY, replace(RECORD, status=SourceStatus.UNKNOWN), "unknown")
    assert workers(client, status=SourceStatus.READY) == {"ready"}
    assert workers(client, status=SourceStatus.INITIALIZING) == {"unknown"}


def test_every_filter(client: CentralClient, clock: FakeClock) -> None:
    stepped = IDENTITY.with_fields(model_name="rl", extra_parameters={"training_step": "12"})
    client.publish(IDENTITY, replace(RECORD, worker_rank=0), "a")
    client.publish(IDENTITY, RECORD, "b")
    client.publish(stepped, replace(RECORD, status=SourceStatus.READY), "c")
    clock.advance(1)
    later = unix_ms(clock)
    client.publish(IDENTITY.with_fields(revision="r2"), RECORD, "d")

    assert workers(client) == {"a", "b", "c", "d"}
    assert workers(client, status=SourceStatus.READY) == {"c"}
    assert workers(client, model_name="org/model") == {"a", "b", "d"}
    assert workers(client, worker_rank=0) == {"a"}
    assert workers(client, min_updated_at_ms=later) == {"d"}
    assert workers(client, min_training_step=0) == {"c"}
    assert workers(client, min_training_step=13) == set()
    assert len(workers(client, limit=2)) == 2
    assert len(workers(client, limit=0)) == 4
    assert workers(client, mx_source_id=SOURCE) == {"a", "b"}
    assert len(workers(client, mx_source_id=SOURCE, limit=1)) == 1
    assert workers(client, model_name="org/model", worker_rank=1, min_updated_at_ms=later) == {"d"}

    def of(identity: SourceIdentity) -> set[str]:
        return {ref.worker_id for ref in client.list_sources(SourceQuery(), identity)}

    assert of(IDENTITY) == {"a", "b"}
    assert of(IDENTITY.with_fields(model_name="ORG/Model")) == {"a", "b"}
    assert of(SourceIdentity(revision="r2")) == {"a", "b", "c", "d"}  # no model name, no filter
    assert of(IDENTITY.with_fields(model_name="nobody")) == set()

    [ref] = client.list_sources(SourceQuery(min_training_step=12))
    assert ref.training_step == 12


def test_missing_records(client: CentralClient) -> None:
    assert client.get_metadata(SOURCE, "w1") is None
    assert client.get_metadata("", "") is None
    assert client.get_metadata("../../etc", "*") is None
    assert not beat(client)
    client.publish(IDENTITY, RECORD, "w1")
    assert client.get_metadata(SOURCE, "__attributes__") is None
    assert not beat(client, rank=2)
    assert not client.update_status(SOURCE, "__attributes__", 1, SourceStatus.READY)


@pytest.mark.parametrize("backend", ["memory", "redis"])
def test_listings_are_newest_first_and_then_cut(
    backend: str, quiet: ServerConfig, clock: FakeClock, request: pytest.FixtureRequest
) -> None:
    url = "memory:" if backend == "memory" else request.getfixturevalue("valkey").url
    with (
        running_central(replace(quiet, backend_url=url), clock) as address,
        client_of(address) as client,
        grpc.insecure_channel(address) as channel,
    ):
        for worker_id in ("mm", "aa", "zz"):
            client.publish(IDENTITY, RECORD, worker_id)
            clock.advance(1)
        p2p = p2p_pb2_grpc.P2pServiceStub(channel)  # type: ignore[no-untyped-call]

        def listed(**filters: Any) -> list[str]:
            """Ask as a deployed client does, which takes the answer's order as it is."""
            answer = p2p.ListSources(pb.ListSourcesRequest(**filters), timeout=10)
            return [instance.worker_id for instance in answer.instances]

        assert listed() == ["zz", "aa", "mm"]
        assert listed(limit=1) == ["zz"]
        assert beat(client, "mm")
        assert listed(limit=2) == ["mm", "zz"]
        assert listed(status_filter=2) == ["mm"]


def test_a_later_releases_type_and_engine_are_stored_and_listed(client: CentralClient) -> None:
    later = IDENTITY.with_fields(mx_source_type=10, backend_framework=7)
    source = client.publish(later, RECORD, "w1")
    assert source == compute_mx_source_id(later)
    assert client.update_status(source, "w1", 1, SourceStatus.READY)
    assert [ref.worker_id for ref in client.list_sources(SourceQuery(), later)] == ["w1"]
    stored = client.get_metadata(source, "w1")
    assert stored is not None
    assert stored.identity == later


def test_weights_that_are_endpoints_only_keep_their_payload(client: CentralClient) -> None:
    client.publish(IDENTITY, replace(RECORD, artifact=None), "w1")
    request = pb.GetMetadataRequest(mx_source_id=SOURCE, worker_id="w1")
    worker = client._p2p.GetMetadata(request).worker
    assert worker.WhichOneof("source_payload") == "tensor_source"


# --- what makes no sense -------------------------------------------------------------------------


def test_a_publish_without_model_name_is_refused(client: CentralClient) -> None:
    with pytest.raises(ConfigurationError, match="model name"):
        client.publish(replace(IDENTITY, model_name=""), RECORD, "w1")


@pytest.mark.parametrize("worker_id", ["", "__attributes__", "a:b", "a b", "x" * 129, "-", "a\n"])
def test_a_worker_id_that_would_break_a_backend_is_refused(
    client: CentralClient, worker_id: str
) -> None:
    with pytest.raises(RemoteError, match="worker_id"):
        client.publish(IDENTITY, RECORD, worker_id)
    assert workers(client) == set()


def test_refusals_inside_the_answer_for_deployed_clients(
    quiet: ServerConfig, clock: FakeClock
) -> None:
    with running_central(quiet, clock) as address, grpc.insecure_channel(address) as channel:
        p2p = p2p_pb2_grpc.P2pServiceStub(channel)  # type: ignore[no-untyped-call]
        worker = pb.WorkerMetadata()
        for request, reason in (
            (pb.PublishMetadataRequest(), "model_name"),
            (pb.PublishMetadataRequest(identity={"model_name": "m"}, worker_id="w"), "worker is"),
            (
                pb.PublishMetadataRequest(
                    identity={"model_name": "m", "mx_source_type": -1}, worker=worker, worker_id="w"
                ),
                "mx_source_type is -1",
            ),
        ):
            answer = p2p.PublishMetadata(request, timeout=10)
            assert not answer.success
            assert reason in answer.message
            assert not answer.mx_source_id
        update = pb.UpdateStatusRequest(mx_source_id=SOURCE, worker_id="w")
        update.status = 9  # type: ignore[assignment]  # a status of a later version
        assert "status 9" in p2p.UpdateStatus(update, timeout=10).message
        update.status = pb.SOURCE_STATUS_READY
        assert "publish again" in p2p.UpdateStatus(update, timeout=10).message


def test_a_load_that_is_not_a_number_is_unknown(client: CentralClient) -> None:
    client.publish(IDENTITY, RECORD, "w1")
    assert client.update_status(SOURCE, "w1", 1, SourceStatus.READY, float("nan"))
    [ref] = client.list_sources(SourceQuery())
    assert ref.source_load is None


# --- age -----------------------------------------------------------------------------------------


def test_ready_without_heartbeat_is_stale_at_read_time(
    client: CentralClient, clock: FakeClock
) -> None:
    client.publish(IDENTITY, RECORD, "a")
    client.publish(IDENTITY, RECORD, "b")
    assert beat(client, "a")
    clock.advance(60)
    assert beat(client, "b")
    clock.advance(30)  # a: exactly the timeout, still counts
    assert workers(client, status=SourceStatus.READY) == {"a", "b"}
    clock.advance(0.001)
    assert workers(client, status=SourceStatus.READY, limit=1) == {"b"}
    assert workers(client, status=SourceStatus.STALE) == {"a"}
    stored = client.get_metadata(SOURCE, "a")
    assert stored is not None
    assert stored.record.status is SourceStatus.STALE
    assert beat(client, "a")
    assert workers(client, status=SourceStatus.READY) == {"a", "b"}


@pytest.mark.parametrize("backend", ["memory", "redis"])
def test_the_reaper_marks_then_deletes(
    backend: str, clock: FakeClock, request: pytest.FixtureRequest
) -> None:
    url = "memory:" if backend == "memory" else request.getfixturevalue("valkey").url
    config = replace(CONFIG, backend_url=url)
    with running_central(config, clock) as address, client_of(address) as client:
        client.publish(IDENTITY, RECORD, "silent")
        client.publish(IDENTITY, RECORD, "alive")
        clock.advance(91)
        assert beat(client, "alive")
        eventually(lambda: workers(client, status=SourceStatus.STALE) == {"silent"})
        assert workers(client, status=SourceStatus.READY) == {"alive"}
        clock.advance(3600)
        assert beat(client, "alive")
        eventually(lambda: workers(client) == {"alive"})
        assert not beat(client, "silent")
        client.publish(IDENTITY, RECORD, "silent")
        assert beat(client, "silent")
        assert workers(client, status=SourceStatus.READY) == {"alive", "silent"}


# --- the backend goes away -----------------------------------------------------------------------


def assert_unavailable(client: CentralClient, message: str, *, reads: bool = True) -> None:
    calls: list[Callable[[], object]] = [
        lambda: client.publish(IDENTITY, RECORD, "w1"),
        lambda: beat(client),
    ]
    if reads:
        calls += [
            lambda: client.list_sources(SourceQuery()),
            lambda: client.list_sources(SourceQuery(status=SourceStatus.READY), IDENTITY),
            lambda: client.get_metadata(SOURCE, "w1"),
        ]
    for call in calls:
        with pytest.raises(BackendUnavailableError, match=message):
            call()


def serving(address: str, service: str = "") -> bool:
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def test_valkey_killed_and_restarted_empty(valkey: RedisProcess) -> None:
    config = replace(CONFIG, backend_url=valkey.url)
    with running_central(config) as address, client_of(address) as client:
        client.publish(IDENTITY, RECORD, "w1")
        assert beat(client)
        valkey.kill()
        assert_unavailable(client, "cannot be reached")
        eventually(lambda: not serving(address))
        assert not serving(address, "model_express.p2p.P2pService")
        assert client.health().status == "metadata backend unavailable"
        valkey.start()
        assert workers(client) == set()
        assert not beat(client)  # so the worker publishes again, under the same ids
        assert client.publish(IDENTITY, RECORD, "w1") == SOURCE
        assert beat(client)
        assert workers(client, status=SourceStatus.READY) == {"w1"}
        eventually(lambda: serving(address))
        assert client.health().status == "ok"


def test_a_server_starts_without_its_backend_and_recovers(valkey: RedisProcess) -> None:
    valkey.kill()
    config = replace(CONFIG, backend_url=valkey.url)
    with running_central(config) as address, client_of(address) as client:
        assert not serving(address)
        assert_unavailable(client, "cannot be reached")
        valkey.start()
        client.publish(IDENTITY, RECORD, "w1")
        assert workers(client) == {"w1"}


def test_the_reaper_outlives_an_outage(valkey: RedisProcess, clock: FakeClock) -> None:
    config = replace(CONFIG, backend_url=valkey.url)
    with running_central(config, clock) as address, client_of(address) as client:
        client.publish(IDENTITY, RECORD, "w1")
        valkey.kill()
        assert_unavailable(client, "cannot be reached")
        valkey.start()
        client.publish(IDENTITY, RECORD, "w1")
        clock.advance(91)
        eventually(lambda: workers(client, status=SourceStatus.STALE) == {"w1"})


def test_a_read_only_backend(valkey: RedisProcess, quiet: ServerConfig) -> None:
    config = replace(quiet, backend_url=valkey.url)
    with running_central(config) as address, client_of(address) as client:
        client.publish(IDENTITY, RECORD, "w1")
        valkey.client.replicaof("127.0.0.1", "1")
        assert_unavailable(client, "read-only replica.*point the Redis URL", reads=False)
        assert workers(client) == {"w1"}
        valkey.client.replicaof("NO", "ONE")
        assert beat(client)


def test_a_full_backend(valkey: RedisProcess, quiet: ServerConfig) -> None:
    config = replace(quiet, backend_url=valkey.url)
    with running_central(config) as address, client_of(address) as client:
        client.publish(IDENTITY, RECORD, "w1")
        valkey.client.config_set("maxmemory-policy", "noeviction")
        valkey.client.config_set("maxmemory", 1)
        assert_unavailable(client, "out of memory.*raise its maxmemory", reads=False)
        assert workers(client) == {"w1"}
        valkey.client.config_set("maxmemory", 0)
        assert beat(client)


def test_a_poison_record_does_not_hide_the_others(
    valkey: RedisProcess, quiet: ServerConfig
) -> None:
    config = replace(quiet, backend_url=valkey.url)
    with running_central(config) as address, client_of(address) as client:
        client.publish(IDENTITY, RECORD, "good")
        client.publish(IDENTITY, RECORD, "poison")
        valkey.client.hset(f"mx:source:{SOURCE}:poison", "1", b'{"updated_at": 1e99')
        assert workers(client) == {"good", "poison"}  # a listing reads no records
        assert client.get_metadata(SOURCE, "poison") is None
        valkey.client.hset(f"mx:source:{SOURCE}", "poison", b'{"updated_at": 1e99')
        assert workers(client) == {"good"}


def test_two_servers_share_one_backend(valkey: RedisProcess) -> None:
    config = replace(CONFIG, backend_url=valkey.url)
    with (
        running_central(config) as first,
        client_of(first) as one,
        running_central(config) as second,
        client_of(second) as two,
    ):
        one.publish(IDENTITY, RECORD, "w1")
        assert beat(two)
        assert workers(one, status=SourceStatus.READY) == {"w1"}


# --- health, reflection, listening ---------------------------------------------------------------


def test_health_services(quiet: ServerConfig, clock: FakeClock) -> None:
    with running_central(quiet, clock) as address, client_of(address) as client:
        clock.advance(7.9)
        assert client.health() == (__version__, "ok", 7)
        assert serving(address)
        assert serving(address, "model_express.p2p.P2pService")
        with pytest.raises(grpc.RpcError) as caught:
            serving(address, "no.such.Service")
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_reflection_lists_and_describes_the_services(quiet: ServerConfig) -> None:
    with running_central(quiet) as address, grpc.insecure_channel(address) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert set(database.get_services()) == {
            "model_express.p2p.P2pService",
            "model_express.health.HealthService",
            "grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection",
            "mx_artifacts.v1.GroupService",
        }
        file = database.FindFileContainingSymbol("model_express.p2p.P2pService")
        [service] = [s for s in file.service if s.name == "P2pService"]
        assert [method.name for method in service.method] == [
            "PublishMetadata",
            "ListSources",
            "GetMetadata",
            "UpdateStatus",
        ]


def refuse(config: ServerConfig) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught, running_central(config):
        pytest.fail("it listens")
    return caught.value


def test_a_port_in_use_is_named(quiet: ServerConfig) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        error = refuse(replace(quiet, port=port))
        assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in str(error)
        assert "--port" in error.hint()
        # gRPC would be content with the other address of the name
        assert f"localhost:{port}" in str(refuse(replace(quiet, host="localhost", port=port)))


def test_a_second_server_does_not_share_the_port(quiet: ServerConfig) -> None:
    with running_central(quiet) as address:
        port = int(address.rpartition(":")[2])
        assert address in str(refuse(replace(quiet, port=port)))


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_a_host_that_is_not_ours_is_named(quiet: ServerConfig, host: str) -> None:
    error = refuse(replace(quiet, host=host))
    assert f"cannot listen on {host}:0" in str(error)
    assert "--host" in error.hint()


def test_the_port_is_free_again_at_once(quiet: ServerConfig) -> None:
    with running_central(quiet) as address, client_of(address) as client:
        client.health()
    port = int(address.rpartition(":")[2])
    with running_central(replace(quiet, port=port)) as again:
        assert again == address


def test_a_client_finds_a_restarted_server_again(quiet: ServerConfig) -> None:
    with running_central(quiet) as address:
        client = CentralClient(address, timeout_seconds=10)
        client.publish(IDENTITY, RECORD, "w1")
    with closing(client):
        with pytest.raises(BackendUnavailableError):
            beat(client)
        port = int(address.rpartition(":")[2])
        with running_central(replace(quiet, port=port)):

            def answered() -> bool:
                try:
                    return not beat(client)  # restarted empty
                except BackendUnavailableError:
                    return False

            eventually(answered)


def test_a_reachable_listener_without_authentication_is_warned_about(
    quiet: ServerConfig, caplog: pytest.LogCaptureFixture
) -> None:
    with running_central(quiet):
        assert "no authentication" not in caplog.text
    with running_central(replace(quiet, host="0.0.0.0")):
        assert "no authentication" in caplog.text


def test_a_server_says_whether_its_records_survive_a_restart(
    valkey: RedisProcess, quiet: ServerConfig
) -> None:
    async def started(config: ServerConfig) -> ServerStarted:
        stop = asyncio.Event()
        events: list[Event] = []
        await serve(config, on_ready=lambda address: stop.set(), stop=stop, events=events.append)
        [event] = [event for event in events if isinstance(event, ServerStarted)]
        return event

    memory = asyncio.run(started(quiet))
    assert (memory.backend, memory.survives_restart, memory.shared) == ("memory", False, False)
    redis = asyncio.run(started(replace(quiet, backend_url=valkey.url)))
    assert (redis.backend, redis.survives_restart, redis.shared) == ("redis", True, True)


def test_a_bad_backend_url_is_refused_before_listening(quiet: ServerConfig) -> None:
    assert "should be memory:" in str(refuse(replace(quiet, backend_url="etcd://x")))


def test_calls_in_flight_finish_before_the_server_stops(
    quiet: ServerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered = threading.Event()

    async def slow_list(self: object, query: SourceQuery) -> list[object]:
        entered.set()
        await asyncio.sleep(0.2)  # the server is told to stop meanwhile
        return []

    monkeypatch.setattr("mx_artifacts.metadata.memory.MemoryRecords.list", slow_list)
    with futures.ThreadPoolExecutor(1) as pool:
        with running_central(quiet) as address:
            client = CentralClient(address, timeout_seconds=10)
            answer = pool.submit(client.list_sources, SourceQuery())
            assert entered.wait(10)
        with closing(client):
            assert answer.result(timeout=10) == []


def test_a_background_task_that_dies_ends_the_server(
    quiet: ServerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def bug(self: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("mx_artifacts.server.reaper.Reaper.sweep", bug)

    async def main() -> None:
        await serve(quiet, on_ready=lambda address: None, stop=asyncio.Event())

    with pytest.raises(ZeroDivisionError):
        asyncio.run(main())


# --- a client and what is not a central server ---------------------------------------------------


def failure(address: str, timeout_seconds: float = 10) -> MxArtifactsError:
    with client_of(address, timeout_seconds) as client, pytest.raises(MxArtifactsError) as caught:
        client.list_sources(SourceQuery())
    assert caught.value.hint()
    return caught.value


def test_an_unreachable_server_fails_at_once() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # not listening
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        error = failure(address, timeout_seconds=60)
    assert isinstance(error, BackendUnavailableError)
    assert address in str(error)
    assert "did not answer in time" not in str(error)


def test_a_name_that_does_not_exist() -> None:
    error = failure("no.such.host.invalid:8001")
    assert isinstance(error, BackendUnavailableError)
    assert "no.such.host.invalid" in str(error)


def test_a_server_that_never_speaks() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        error = failure(f"127.0.0.1:{mute.getsockname()[1]}", timeout_seconds=0.3)
    assert isinstance(error, BackendUnavailableError)
    assert "did not answer in time" in str(error)


def test_something_that_does_not_speak_grpc() -> None:
    def greet() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"SSH-2.0-OpenSSH_9.9\r\n")
            connection.recv(1024)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=greet)
        thread.start()
        error = failure(f"127.0.0.1:{listener.getsockname()[1]}")
        thread.join()
    assert isinstance(error, RemoteError)
    assert "not a ModelExpress server" in str(error)


def test_another_grpc_server() -> None:
    with futures.ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        error = failure(f"127.0.0.1:{port}")
        server.stop(None).wait()
    assert isinstance(error, RemoteError)
    assert "not a ModelExpress server" in str(error)


@pytest.mark.parametrize("address", ["", "localhost", "localhost:", "localhost:port", ":8001"])
def test_a_malformed_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigurationError, match="should be host:port"):
        CentralClient(address, timeout_seconds=1)
