"""Calls that never go on do not silence a source: others read from it all the same."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager

import grpc
import pytest

from mx_artifacts.client.worker import WorkerClient
from mx_artifacts.wire.gen.mx_artifacts.v1 import source_pb2 as pb
from mx_artifacts.worker import call_limits, worker_server
from mx_artifacts.worker.extension_service import SourceService
from tests.support.artifacts import (
    CHUNK_SIZE,
    SOURCE_ID,
    ArtifactServer,
    SealedArtifact,
    make_artifact,
    serving,
)
from tests.support.received import fetch
from tests.support.transfer_process import new_network_agent

HEADER = "/model_express.p2p.WorkerService/GetArtifactManifestHeader"
INDEX = "/mx_artifacts.v1.SourceService/GetMemberIndex"
CALLS = 400
WAIT_SECONDS = 30.0
"""Only a failing test waits for it."""


@pytest.fixture(autouse=True)
def _strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the peers of these tests, which are on this machine, for others."""
    monkeypatch.setattr(worker_server, "is_own_address", lambda address: False)


@pytest.fixture(name="artifact")
def _artifact() -> SealedArtifact:
    return make_artifact({"artifact.tar": 6 * CHUNK_SIZE})


@pytest.fixture(name="server")
def _server(artifact: SealedArtifact) -> Iterator[ArtifactServer]:
    """A source that a flood reaches by 127.0.0.1, and honest targets by ::1: two peers."""
    agent = new_network_agent("source")
    with serving(artifact, transport=agent, host="::1", listen="::") as server:
        yield server


@pytest.fixture(name="long_index")
def _long_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every artifact have a member index of 64 MiB, which nobody takes at once."""

    def pages(*_: object) -> Iterator[pb.MemberIndexPage]:
        for _page in range(64):
            yield pb.MemberIndexPage(paths=["x" * (1 << 20)])

    monkeypatch.setattr(SourceService, "GetMemberIndex", pages)


@contextmanager
def half_open(server: ArtifactServer, count: int) -> Iterator[None]:
    """Begin calls on one connection whose requests never come."""
    ended = threading.Event()

    def nothing() -> Iterator[bytes]:
        ended.wait()
        yield from ()

    port = server.endpoint.rpartition(":")[2]
    with ExitStack() as stack, closing(grpc.insecure_channel(f"127.0.0.1:{port}")) as channel:
        begin = channel.stream_unary(HEADER)
        for _ in range(count):
            stack.callback(begin.future(nothing()).cancel)
        stack.callback(ended.set)
        yield


@contextmanager
def unread(server: ArtifactServer, artifact: SealedArtifact, count: int) -> Iterator[None]:
    """Ask for index streams on one connection, and read none of them."""
    request = pb.Artifact(mx_source_id=SOURCE_ID, artifact_id=artifact.artifact_id)
    port = server.endpoint.rpartition(":")[2]
    with ExitStack() as stack, closing(grpc.insecure_channel(f"127.0.0.1:{port}")) as channel:
        begin = channel.unary_stream(INDEX)
        for _ in range(count):
            stack.callback(begin(request.SerializeToString()).cancel)
        yield


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def under_way(server: ArtifactServer) -> int:
    return sum(server._call_limits._of_peer.values())


def test_others_read_while_one_peer_holds_all_that_it_may(
    server: ArtifactServer, artifact: SealedArtifact
) -> None:
    with half_open(server, CALLS):
        eventually(lambda: under_way(server) >= server._call_limits._max_of_peer)
        with closing(new_network_agent("target")) as agent:
            received = fetch(server.endpoint, artifact.artifact_id, agent)
        assert received.content == artifact.content
        assert server.is_healthy()


@pytest.mark.usefixtures("long_index")
def test_other_peers_are_answered_while_one_reads_none_of_its_streams(
    artifact: SealedArtifact,
) -> None:
    agent = new_network_agent("source")
    with (
        serving(artifact, transport=agent, host="::1", listen="::") as server,
        unread(server, artifact, CALLS),
    ):
        eventually(lambda: under_way(server) >= server._call_limits._max_of_peer)
        with WorkerClient(server.endpoint, timeout_seconds=WAIT_SECONDS) as client:
            assert client.header(artifact.ref).artifact_id == artifact.artifact_id


def test_a_call_whose_request_never_comes_is_ended(
    server: ArtifactServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_limits, "REQUEST_SECONDS", 0.1)
    with half_open(server, 20):
        eventually(lambda: under_way(server) > 0)
        eventually(lambda: under_way(server) == 0)


def test_more_calls_than_a_peers_share_are_refused_as_busy(server: ArtifactServer) -> None:
    with half_open(server, CALLS):
        eventually(lambda: under_way(server) >= server._call_limits._max_of_peer)
        port = server.endpoint.rpartition(":")[2]
        with (
            closing(grpc.insecure_channel(f"127.0.0.1:{port}")) as channel,
            pytest.raises(grpc.RpcError) as refused,
        ):
            channel.unary_unary(HEADER)(b"", timeout=WAIT_SECONDS)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
