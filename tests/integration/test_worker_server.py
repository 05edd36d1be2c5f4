"""The source process's side of the protocol, spoken to by hand."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from mx_artifacts.client.worker import WorkerClient
from mx_artifacts.core.manifest import ArtifactRef, ManifestChunk
from mx_artifacts.errors import (
    ConfigurationError,
    LeaseExpiredError,
    NoFreeSlotError,
    PeerLostError,
    RecordNotFoundError,
    RemoteError,
)
from mx_artifacts.observability.catalogue import WorkerPortChanged
from mx_artifacts.observability.events import Event
from mx_artifacts.runtime.clock import FakeClock
from mx_artifacts.wire.gen.model_express import p2p_pb2 as pb
from mx_artifacts.wire.gen.model_express import p2p_pb2_grpc
from mx_artifacts.worker.chunk_source import SlotChunkSource
from mx_artifacts.worker.serving_settings import ServingSettings
from tests.support.artifacts import (
    CHUNK_SIZE,
    SOURCE_ID,
    ArtifactServer,
    SealedArtifact,
    in_memory_or_file,
    make_artifact,
    new_agent,
    serving,
)


@pytest.fixture
def artifact(tmp_path: Path) -> SealedArtifact:
    return make_artifact({"artifact.tar": 3 * CHUNK_SIZE})


@pytest.fixture
def server(artifact: SealedArtifact) -> Iterator[ArtifactServer]:
    with serving(artifact, slots=1, clock=FakeClock()) as server:
        yield server


@pytest.fixture
def clients(server: ArtifactServer) -> Iterator[Callable[[], WorkerClient]]:
    made: list[WorkerClient] = []

    def make() -> WorkerClient:
        made.append(WorkerClient(server.endpoint, timeout_seconds=20))
        return made[-1]

    yield make
    for client in made:
        client.close()


def prepare(client: WorkerClient, artifact: SealedArtifact, index: int = 0) -> str:
    return client.prepare_chunk(artifact.ref, index).lease_id


def test_a_busy_source_says_so_and_a_release_frees_it(
    artifact: SealedArtifact, clients: Callable[[], WorkerClient]
) -> None:
    client = clients()
    lease_id = prepare(client, artifact)
    with pytest.raises(NoFreeSlotError, match="busy"):
        client.prepare_chunk(artifact.ref, 1, timeout_seconds=1)
    client.release_chunk(artifact.ref, lease_id)
    prepare(client, artifact, 1)
    with pytest.raises(RecordNotFoundError, match="lease"):
        client.release_chunk(artifact.ref, lease_id)


def test_a_lease_that_is_ready_when_its_target_gives_up_is_freed(
    artifact: SealedArtifact,
    server: ArtifactServer,
    clients: Callable[[], WorkerClient],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The target asks again under the same session, which would keep the slot otherwise."""
    fill = SlotChunkSource._fill
    late = iter([0.9])

    def fill_late(self: SlotChunkSource, chunk: ManifestChunk, target: memoryview) -> None:
        time.sleep(next(late, 0.0))
        fill(self, chunk, target)

    monkeypatch.setattr(SlotChunkSource, "_fill", fill_late)
    client = clients()
    assert client.attach()
    with pytest.raises((NoFreeSlotError, PeerLostError), match=r"only after|in time"):
        client.prepare_chunk(artifact.ref, 0, timeout_seconds=1.0)
    prepare(client, artifact)
    assert len(server.artifacts.leases) == 1


def test_a_session_that_ends_frees_its_slot_for_the_next(
    artifact: SealedArtifact, clients: Callable[[], WorkerClient]
) -> None:
    first, second = clients(), clients()
    assert first.attach()
    assert second.attach()
    prepare(first, artifact)
    got = threading.Event()

    def wait_for_slot() -> None:
        prepare(second, artifact, 1)
        got.set()

    waiting = threading.Thread(target=wait_for_slot)
    waiting.start()
    first.close()
    waiting.join()
    assert got.is_set()


def test_an_ended_session_gets_no_more_leases(
    artifact: SealedArtifact, clients: Callable[[], WorkerClient]
) -> None:
    client = clients()
    client.attach()
    assert client._session is not None
    client._session.cancel()

    def prepare_until_refused() -> None:  # the source learns of the end a moment later
        for _ in range(1000):
            lease_id = prepare(client, artifact)
            with contextlib.suppress(RecordNotFoundError):
                client.release_chunk(artifact.ref, lease_id)

    with pytest.raises(LeaseExpiredError):
        prepare_until_refused()


def test_renewed_leases_outlive_their_ttl(
    artifact: SealedArtifact, clients: Callable[[], WorkerClient], server: ArtifactServer
) -> None:
    client = clients()
    client.attach()
    lease_id = prepare(client, artifact)
    clock = server.artifacts.leases._clock
    assert isinstance(clock, FakeClock)
    for _ in range(3):
        clock.advance(25)
        assert server.artifacts.leases.renew_session(client._session.session_id) == 1  # type: ignore[union-attr]
    clock.advance(290)
    assert server.artifacts.leases.expire() == 0
    client.release_chunk(artifact.ref, lease_id)


def test_an_expired_lease_frees_its_slot_and_says_so(
    artifact: SealedArtifact, clients: Callable[[], WorkerClient], server: ArtifactServer
) -> None:
    client = clients()
    client.attach()
    lease_id = prepare(client, artifact)
    clock = server.artifacts.leases._clock
    assert isinstance(clock, FakeClock)
    clock.advance(301)
    prepare(client, artifact, 1)  # waits for the expiry thread
    with pytest.raises(LeaseExpiredError):
        client.release_chunk(artifact.ref, lease_id)


def test_wrong_requests_are_refused(
    artifact: SealedArtifact, clients: Callable[[], WorkerClient]
) -> None:
    client = clients()
    with pytest.raises(RemoteError, match="INVALID_ARGUMENT"):
        prepare(client, artifact, 3)
    with pytest.raises(RecordNotFoundError):
        client.header(ArtifactRef("0" * 16, artifact.artifact_id))
    with pytest.raises(RecordNotFoundError, match="lease"):
        client.release_chunk(artifact.ref, "no such lease")
    assert client.header(ArtifactRef("", "")) == client.header(artifact.ref)


def test_an_empty_id_needs_a_single_artifact(
    tmp_path: Path, server: ArtifactServer, clients: Callable[[], WorkerClient]
) -> None:
    other = make_artifact({"artifact.tar": 1})
    server.artifacts.add_artifact(
        SOURCE_ID, other.artifact_id, other.manifest, other.bundles(), slots=1
    )
    with pytest.raises(RemoteError, match="state the ids of one"):
        clients().header(ArtifactRef(SOURCE_ID, ""))
    assert clients().header(other.ref).total_size == 1
    with pytest.raises(ConfigurationError, match="already"):
        server.artifacts.add_artifact(
            SOURCE_ID, other.artifact_id, other.manifest, other.bundles(), slots=1
        )


def test_pages_hold_what_was_asked_for(server: ArtifactServer) -> None:
    with grpc.insecure_channel(server.endpoint) as channel:
        stub = p2p_pb2_grpc.WorkerServiceStub(channel)  # type: ignore[no-untyped-call]
        tokens = []
        for start in (0, 2, 3):
            request = pb.GetArtifactManifestChunksRequest(start_chunk_index=start, max_chunks=2)
            page = stub.GetArtifactManifestChunks(request, timeout=20)
            tokens.append((len(page.chunks), page.next_page_token))
        assert tokens == [(2, "2"), (1, ""), (0, "")]
        request = pb.GetArtifactManifestChunksRequest(start_chunk_index=4)
        with pytest.raises(grpc.RpcError) as caught:
            stub.GetArtifactManifestChunks(request, timeout=20)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        with pytest.raises(grpc.RpcError) as caught:
            stub.GetTensorManifest(pb.GetTensorManifestRequest(), timeout=20)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_a_bundle_that_its_disk_returns_damaged_is_never_served(
    tmp_path: Path, artifact: SealedArtifact
) -> None:
    bundles = artifact.bundles(in_files=tmp_path)
    bundles["/bundle/artifact.tar"].view[CHUNK_SIZE : CHUNK_SIZE + 7] = b"changed"
    with (
        serving(artifact, slots=2, bundles=bundles) as server,
        WorkerClient(server.endpoint, timeout_seconds=20) as client,
    ):
        client.release_chunk(artifact.ref, prepare(client, artifact, 0))
        with pytest.raises(RemoteError, match="not as it was sealed"):
            prepare(client, artifact, 1)
        prepare(client, artifact, 0)  # and the slot is free again


def test_a_bundle_that_is_missing(artifact: SealedArtifact) -> None:
    bundles = {"/bundle/other.tar": in_memory_or_file(b"x")}
    with (
        pytest.raises(ConfigurationError, match=r"artifact\.tar"),
        serving(artifact, bundles=bundles),
    ):
        pass


def test_removed_artifacts_stay_readable_while_leased(
    artifact: SealedArtifact, clients: Callable[[], WorkerClient], server: ArtifactServer
) -> None:
    client = clients()
    lease_id = prepare(client, artifact)
    server.artifacts.remove_artifact(SOURCE_ID, artifact.artifact_id)
    with pytest.raises(RecordNotFoundError):
        prepare(client, artifact)
    client.release_chunk(artifact.ref, lease_id)
    assert not server._transport._regions  # type: ignore[attr-defined]


def test_stop_drains_refuses_and_frees(
    artifact: SealedArtifact, clients: Callable[[], WorkerClient], server: ArtifactServer
) -> None:
    client = clients()
    client.attach()
    lease_id = prepare(client, artifact)
    stopping = threading.Thread(target=server.stop, args=(60,))
    stopping.start()
    while not server.artifacts.is_draining:
        time.sleep(0.01)
    with pytest.raises(PeerLostError, match="stopping"):
        prepare(client, artifact, 1)
    client.release_chunk(artifact.ref, lease_id)
    stopping.join()
    assert not server._transport._regions  # type: ignore[attr-defined]
    with pytest.raises(PeerLostError):
        client.header(artifact.ref)


def test_health_follows_the_data_plane_and_the_service(
    artifact: SealedArtifact, server: ArtifactServer
) -> None:
    assert server.is_healthy()
    server._transport.close()
    assert not server.is_healthy()
    with serving(artifact) as other:
        assert other.is_healthy()
        other.stop(0)
        assert not other.is_healthy()


def test_stop_without_patience_frees_what_is_leased(
    artifact: SealedArtifact, clients: Callable[[], WorkerClient], server: ArtifactServer
) -> None:
    client = clients()
    client.attach()
    prepare(client, artifact)
    server.stop(0)
    server.stop(0)
    assert not server._transport._regions  # type: ignore[attr-defined]


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def test_a_taken_port_is_left_or_named(taken_port: int, caplog: pytest.LogCaptureFixture) -> None:
    agent = new_agent("source")
    here = ServingSettings(host="127.0.0.1", port=taken_port)
    strict = ArtifactServer(agent, replace(here, is_port_required=True))
    with pytest.raises(ConfigurationError, match=f":{taken_port}: .*in use") as caught:
        strict.start()
    assert "MX_WORKER_GRPC_PORT" in caught.value.hint()
    strict.stop(0)
    with caplog.at_level(logging.WARNING):
        events: list[Event] = []
        easy = ArtifactServer(agent, here, events=events.append)
        port = easy.start()
    assert port not in (0, taken_port)
    assert easy.endpoint == f"127.0.0.1:{port}"
    assert str(port) in caplog.text
    assert events == [WorkerPortChanged(taken_port, port)]
    second = ArtifactServer(agent, replace(here, port=port, is_port_required=True))
    with pytest.raises(ConfigurationError, match="in use"):  # no SO_REUSEPORT between workers
        second.start()
    for server in (second, easy):
        server.stop(0)
    agent.close()


def test_an_address_that_is_not_ours_is_named() -> None:
    agent = new_agent("source")
    server = ArtifactServer(agent, ServingSettings(host="192.0.2.1", port=0))
    with pytest.raises(ConfigurationError, match=r"192\.0\.2\.1") as caught:
        server.start()
    assert "MX_WORKER_LISTEN" in caught.value.hint()
    server.stop(0)
    agent.close()


def test_more_targets_attach_than_a_small_server_has_threads(
    artifact: SealedArtifact, clients: Callable[[], WorkerClient]
) -> None:
    attached = [clients() for _ in range(40)]
    assert all(client.attach() for client in attached)
    lease_id = prepare(attached[0], artifact)
    attached[-1].release_chunk(artifact.ref, lease_id)


def test_one_artifact_under_two_source_ids(
    server: ArtifactServer, artifact: SealedArtifact, clients: Callable[[], WorkerClient]
) -> None:
    server.artifacts.add_alias("alias", SOURCE_ID, artifact.artifact_id)
    client = clients()
    for name in (SOURCE_ID, "alias"):
        assert client.header(ArtifactRef(name, artifact.artifact_id)).mx_source_id == name
    assert client.header(ArtifactRef("", artifact.artifact_id)).artifact_id == artifact.artifact_id
    with pytest.raises(ConfigurationError, match="already served"):
        server.artifacts.add_alias("alias", SOURCE_ID, artifact.artifact_id)
    with pytest.raises(RecordNotFoundError):
        server.artifacts.add_alias("other", "none", artifact.artifact_id)
    server.artifacts.remove_artifact(SOURCE_ID, artifact.artifact_id)
    lease = client.prepare_chunk(
        ArtifactRef("alias", artifact.artifact_id), 0
    )  # the memory is still there
    client.release_chunk(ArtifactRef("alias", artifact.artifact_id), lease.lease_id)
    server.artifacts.remove_artifact("alias", artifact.artifact_id)
    with pytest.raises(RecordNotFoundError):
        client.header(ArtifactRef("alias", artifact.artifact_id))
