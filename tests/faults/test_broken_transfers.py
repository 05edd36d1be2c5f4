"""Reads that go wrong, and sources that go away, over the in-process transport."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from mx_artifacts.client.worker import WorkerClient
from mx_artifacts.errors import (
    ChunkChecksumError,
    MxArtifactsError,
    NoFreeSlotError,
    PeerLostError,
    ReadTimeoutError,
)
from mx_artifacts.observability.events import Event, EventSink, ignore_events
from mx_artifacts.transfer.timing import DEFAULT_TIMING, TransferTiming
from mx_artifacts.transport.faults import Corrupt, Delay, Fault, FaultyTransport, LosePeer, Stall
from mx_artifacts.worker.extension_service import SourceService
from mx_artifacts.worker.worker_service import WorkerService
from tests.support.artifacts import (
    CHUNK_SIZE,
    SOURCE_ID,
    ArtifactServer,
    SealedArtifact,
    make_artifact,
    new_agent,
    serving,
)
from tests.support.received import TransferResult, fetch

CHUNKS = 6
CALL_SECONDS = 0.5
"""Of one call, in tests of what happens after it."""
_ADD_SERVICE = (
    "mx_artifacts.worker.artifact_service.source_pb2_grpc.add_SourceServiceServicer_to_server"
)


@pytest.fixture
def artifact(tmp_path: Path) -> SealedArtifact:
    return make_artifact({"artifact.tar": CHUNKS * CHUNK_SIZE})


class Target:
    def __init__(self) -> None:
        self.received = TransferResult()
        self.transport = FaultyTransport(new_agent("target"), {})

    def spoil(self, plan: Mapping[int, Fault]) -> None:
        self.transport._plan = dict(plan)

    def fetch(
        self,
        server: ArtifactServer,
        artifact: SealedArtifact,
        *,
        timeout_seconds: float = 60,
        max_inflight_chunks: int = 2,
        events: EventSink = ignore_events,
        timing: TransferTiming = DEFAULT_TIMING,
    ) -> None:
        self.received = TransferResult()
        fetch(
            server.endpoint,
            artifact.artifact_id,
            self.transport,
            self.received,
            timeout_seconds=timeout_seconds,
            max_inflight_chunks=max_inflight_chunks,
            events=events,
            timing=timing,
        )

    def has(self, artifact: SealedArtifact) -> bool:
        return self.received.finished and self.received.content == artifact.content

    def has_failed(self) -> bool:
        return self.received.stopped and not self.received.finished


@pytest.fixture
def target() -> Iterator[Target]:
    target = Target()
    yield target
    target.transport.let_go()
    target.transport.close()


@pytest.mark.parametrize("slots", [None, 2], ids=["resident", "slots"])
def test_a_chunk_that_is_damaged_once_is_read_again(
    artifact: SealedArtifact, target: Target, slots: int | None
) -> None:
    target.spoil({2: Corrupt(7), 5: Corrupt(CHUNK_SIZE - 1)})
    with serving(artifact, slots=slots) as server:
        target.fetch(server, artifact)
    assert target.has(artifact)


def test_a_chunk_that_is_always_damaged_fails_with_nothing_left(
    artifact: SealedArtifact, target: Target
) -> None:
    target.spoil({read: Corrupt() for read in range(1, 100)})
    with serving(artifact, slots=2) as server:
        with pytest.raises(ChunkChecksumError, match=server.endpoint):
            target.fetch(server, artifact)
        assert len(server.artifacts.leases) == 0
    assert target.has_failed()


def test_a_lost_peer_is_named_with_how_far_it_got(artifact: SealedArtifact, target: Target) -> None:
    target.spoil({4: LosePeer()})
    with (
        serving(artifact, slots=2) as server,
        pytest.raises(PeerLostError, match=f"{server.endpoint}.*3 of {CHUNKS} parts") as caught,
    ):
        target.fetch(server, artifact, max_inflight_chunks=1)
    assert caught.value.retryable
    assert target.has_failed()


def test_a_read_that_stalls_ends_with_the_deadline_and_its_memory_is_kept(
    artifact: SealedArtifact, target: Target
) -> None:
    target.spoil({3: Stall()})
    inner = target.transport._inner
    with serving(artifact, slots=2) as server:
        with pytest.raises(ReadTimeoutError, match=f"{server.endpoint}.*of {CHUNKS} parts"):
            target.fetch(server, artifact, timeout_seconds=1)
        assert len(server.artifacts.leases) == 0
    assert target.has_failed()
    assert len(inner._regions) == 1  # type: ignore[attr-defined]  # quarantined: may still land


def test_an_error_elsewhere_ends_a_stalled_read_at_once(
    artifact: SealedArtifact, target: Target
) -> None:
    target.spoil({1: Stall(), 3: LosePeer()})
    with serving(artifact, slots=2) as server, pytest.raises(PeerLostError):
        target.fetch(server, artifact, timeout_seconds=600)
    assert target.has_failed()


NEVER_RELEASED = "never released"  # what a source logs when it takes a lease's memory back


def test_leases_of_a_slow_read_are_renewed(
    artifact: SealedArtifact, target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    target.spoil({1: Delay(2.2)})
    with serving(artifact, slots=2, lease_ttl_seconds=1.0, lease_grace_seconds=0.0) as server:
        target.fetch(server, artifact)
    assert target.has(artifact)
    assert NEVER_RELEASED not in caplog.text


def test_an_expired_lease_does_not_count_as_damage_and_is_prepared_again(
    artifact: SealedArtifact,
    target: Target,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The reader sleeps, its slot is filled anew, and what it read is garbage, again and again."""
    monkeypatch.setattr("mx_artifacts.client.session.RENEWALS_PER_TTL", 0.001)  # it never renews
    sleeping = FaultyTransport(target.transport, {1: Delay(2.2)})
    target.spoil({1: Corrupt()})
    with serving(artifact, slots=1, lease_ttl_seconds=0.1, lease_grace_seconds=0.0) as server:
        fetch(
            server.endpoint,
            artifact.artifact_id,
            sleeping,
            target.received,
            max_inflight_chunks=1,
            max_corrupt_reads=0,
        )
    assert target.has(artifact)
    assert NEVER_RELEASED in caplog.text


def test_a_source_that_stops_is_noticed(artifact: SealedArtifact, target: Target) -> None:
    target.spoil({3: Stall()})
    arrived = threading.Semaphore(0)

    def count(event: Event) -> None:
        if event.name == "transfer.span":
            arrived.release()

    with serving(artifact, slots=2) as server, ThreadPoolExecutor(1) as other:
        fetching = other.submit(
            target.fetch,
            server,
            artifact,
            timeout_seconds=600,
            max_inflight_chunks=2,
            events=count,
        )
        for _ in range(2):
            assert arrived.acquire(timeout=60)
        server.stop(0)
        with pytest.raises(PeerLostError, match=server.endpoint):
            fetching.result()
    assert target.has_failed()


def test_a_source_that_no_longer_serves_the_artifact_counts_as_lost(
    artifact: SealedArtifact, target: Target
) -> None:
    """Its publisher ends in order; to the target that is no damage, and another source may do."""

    def withdraw(event: Event) -> None:
        if event.name == "transfer.span":
            server.artifacts.remove_artifact(SOURCE_ID, artifact.artifact_id)

    with (
        serving(artifact, slots=1) as server,
        pytest.raises(PeerLostError, match=f"{server.endpoint}.*of {CHUNKS} parts") as caught,
    ):
        target.fetch(server, artifact, events=withdraw)
    assert caught.value.retryable
    assert target.has_failed()


def test_a_source_that_is_busy_for_ever_is_given_up_at_the_deadline(
    artifact: SealedArtifact, target: Target
) -> None:
    with serving(artifact, slots=1) as server:
        with WorkerClient(server.endpoint, timeout_seconds=20) as other:
            other.attach()
            other.prepare_chunk(artifact.ref, 0)
            message = f"{server.endpoint}.*0 of {CHUNKS} parts"
            with pytest.raises((NoFreeSlotError, ReadTimeoutError), match=message):
                target.fetch(server, artifact, timeout_seconds=1)
        assert target.has_failed()
        target.fetch(server, artifact)
    assert target.has(artifact)


@pytest.mark.parametrize("call", ["PrepareArtifactChunk", "Attach", "LeaseArtifact"])
def test_a_source_that_is_late_with_some_answers_is_busy_not_lost(
    artifact: SealedArtifact, target: Target, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has hundreds of targets, and answers its smallest call."""
    late = iter([CALL_SECONDS + 0.2] * 3)
    service = WorkerService if call == "PrepareArtifactChunk" else SourceService
    answer = getattr(service, call)

    def answer_late(self: object, request: object, context: grpc.ServicerContext) -> object:
        time.sleep(next(late, 0.0))
        return answer(self, request, context)

    monkeypatch.setattr(service, call, answer_late)
    with serving(artifact, slots=2) as server:
        target.fetch(server, artifact, timing=TransferTiming(call=CALL_SECONDS))
        assert len(server.artifacts.leases) == 0
    assert target.has(artifact)
    assert next(late, None) is None


def test_a_source_that_answers_nothing_any_more_is_given_up(
    artifact: SealedArtifact, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent, over, answered = threading.Event(), threading.Event(), threading.Event()
    answer = WorkerService.GetArtifactManifestChunks

    def hang(self: WorkerService, request: object, context: grpc.ServicerContext) -> object:
        silent.set()
        over.wait(60)
        answered.set()
        context.abort(grpc.StatusCode.UNAVAILABLE, "it was too late for an answer")
        raise AssertionError("abort raises")

    def answer_once(self: WorkerService, request: Any, context: grpc.ServicerContext) -> object:
        return (hang if silent.is_set() else answer)(self, request, context)

    monkeypatch.setattr(WorkerService, "PrepareArtifactChunk", hang)
    monkeypatch.setattr(WorkerService, "GetArtifactManifestChunks", answer_once)
    with serving(artifact, slots=2) as server:
        with pytest.raises(PeerLostError, match=server.endpoint):
            target.fetch(server, artifact, timing=TransferTiming(call=CALL_SECONDS))
        assert not answered.is_set()
        over.set()
    assert target.has_failed()


def test_a_source_without_sessions_is_served_by_the_plain_protocol(
    artifact: SealedArtifact, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the reference's sources are."""
    name = _ADD_SERVICE
    monkeypatch.setattr(name, lambda _service, _server: None)
    with serving(artifact, slots=2) as server:
        target.fetch(server, artifact)
    assert target.has(artifact)


def test_a_plain_source_that_dies_during_a_stalled_read_is_noticed(
    artifact: SealedArtifact, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        _ADD_SERVICE,
        lambda _service, _server: None,
    )
    target.spoil({1: Stall()})
    with serving(artifact, slots=2) as server, ThreadPoolExecutor(1) as other:
        fetching = other.submit(
            target.fetch,
            server,
            artifact,
            timeout_seconds=600,
            max_inflight_chunks=1,
            timing=TransferTiming(stalled_read=0.25),
        )
        while len(server.artifacts.leases) == 0:
            assert not fetching.done()
            time.sleep(0.01)
        server.stop(0)
        with pytest.raises(PeerLostError, match=server.endpoint):
            fetching.result()


def test_a_listener_that_never_answers_is_named_within_the_deadline(
    target: Target, artifact: SealedArtifact
) -> None:
    with socket.socket() as blackhole:
        blackhole.bind(("127.0.0.1", 0))
        blackhole.listen()
        endpoint = f"127.0.0.1:{blackhole.getsockname()[1]}"
        with pytest.raises(PeerLostError, match=endpoint):
            fetch(endpoint, artifact.artifact_id, target.transport, timeout_seconds=1)


def test_something_else_that_listens_there_is_named(
    target: Target, artifact: SealedArtifact
) -> None:
    with ThreadPoolExecutor(1) as threads:
        server = grpc.server(threads)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        with pytest.raises(MxArtifactsError, match=f"127.0.0.1:{port} is not a ModelExpress"):
            fetch(f"127.0.0.1:{port}", artifact.artifact_id, target.transport)
        server.stop(None).wait()
