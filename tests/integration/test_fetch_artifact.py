"""A target and a real gRPC source, over the in-process transport."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mx_artifacts.bundle.index import BundleMap
from mx_artifacts.bundle.spans import Span
from mx_artifacts.core.manifest import ArtifactManifest
from mx_artifacts.errors import (
    ArtifactIdMismatchError,
    BundleError,
    InstallError,
    PeerLostError,
    RecordNotFoundError,
)
from mx_artifacts.observability.catalogue import SpanReceived, TransferFinished, TransferStarted
from mx_artifacts.observability.events import Event
from mx_artifacts.runtime.threads import WorkStopped
from mx_artifacts.transfer import pipeline
from mx_artifacts.transport.base import Transport
from mx_artifacts.transport.faults import FaultyTransport, Stall
from tests.support.artifacts import (
    CHUNK_SIZE,
    SOURCE_ID,
    make_artifact,
    new_agent,
    serving,
)
from tests.support.received import TransferResult, fetch


@pytest.fixture
def agent() -> Iterator[Transport]:
    agent = new_agent("target")
    yield agent
    agent.close()


SIZES = {
    "one byte": {"artifact.tar": 1},
    "one chunk": {"artifact.tar": CHUNK_SIZE},
    "a chunk and a byte": {"artifact.tar": CHUNK_SIZE + 1},
    "less a byte": {"artifact.tar": 2 * CHUNK_SIZE - 1},
    "empty alone": {"artifact.tar": 0},
    "several": {"artifact.tar": 9 * CHUNK_SIZE, "autotune.tar": 0, "third.tar": 17},
}


@pytest.mark.parametrize("slots", [None, 2], ids=["resident", "slots"])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_bytes_arrive(
    tmp_path: Path, agent: Transport, sizes: dict[str, int], slots: int | None
) -> None:
    artifact = make_artifact(sizes)
    with serving(artifact, slots=slots) as server:
        received = fetch(server.endpoint, artifact.artifact_id, agent)
    assert received.finished
    assert received.content == artifact.content
    assert received.manifest == artifact.manifest


def test_events_add_up(tmp_path: Path, agent: Transport) -> None:
    artifact = make_artifact({"artifact.tar": 5 * CHUNK_SIZE + 1})
    events: list[Event] = []
    with serving(artifact) as server:
        fetch(server.endpoint, "", agent, events=events.append)
    total_bytes = artifact.manifest.total_size
    assert events[0] == TransferStarted(total_bytes, 6)
    assert events[-1] == TransferFinished(total_bytes, 6)
    received = [event for event in events[1:-1] if isinstance(event, SpanReceived)]
    assert len(received) == len(events) - 2
    assert sum(event.length_bytes for event in received) == total_bytes


def test_a_table_of_many_pages_arrives(tmp_path: Path, agent: Transport) -> None:
    artifact = make_artifact({"artifact.tar": 1030}, chunk_size=1)
    with serving(artifact) as server:
        received = fetch(server.endpoint, artifact.artifact_id, agent)
    assert received.content == artifact.content


def test_one_agent_may_fetch_twice_at_once_and_again(tmp_path: Path, agent: Transport) -> None:
    artifact = make_artifact({"artifact.tar": 20 * CHUNK_SIZE})
    with serving(artifact, slots=2) as server, ThreadPoolExecutor(2) as both:
        for _ in range(2):
            fetches = [
                both.submit(fetch, server.endpoint, artifact.artifact_id, agent) for _ in range(2)
            ]
            assert [f.result().content for f in fetches] == [artifact.content] * 2


def test_sixteen_targets_share_four_slots(tmp_path: Path) -> None:
    artifact = make_artifact({"artifact.tar": 24 * CHUNK_SIZE})
    start = threading.Barrier(16)

    def target(number: int) -> bool:
        agent = new_agent("target")
        start.wait()
        try:
            received = fetch(server.endpoint, artifact.artifact_id, agent)
            return received.content == artifact.content
        finally:
            agent.close()

    with serving(artifact, slots=4) as server, ThreadPoolExecutor(16) as targets:
        assert list(targets.map(target, range(16))) == [True] * 16


def test_an_artifact_that_the_source_does_not_have_is_not_found(
    tmp_path: Path, agent: Transport
) -> None:
    artifact = make_artifact({"artifact.tar": 1})
    with serving(artifact) as server:
        with pytest.raises(RecordNotFoundError, match=server.endpoint):
            fetch(server.endpoint, "0" * 64, agent)
        server.artifacts.remove_artifact(SOURCE_ID, artifact.artifact_id)
        with pytest.raises(RecordNotFoundError):
            fetch(server.endpoint, artifact.artifact_id, agent)


def test_the_error_of_an_unreachable_source_names_its_endpoint(
    tmp_path: Path, agent: Transport
) -> None:
    with pytest.raises(PeerLostError, match=r"127\.0\.0\.1:1 was lost") as caught:
        fetch("127.0.0.1:1", "0" * 64, agent)
    assert caught.value.retryable


class Refusing(TransferResult):
    """Refuses an artifact before it comes, or in the middle of it."""

    def __init__(self, after_chunks: int) -> None:
        super().__init__()
        self._left = after_chunks

    def begin(self, manifest: ArtifactManifest, maps: Mapping[int, BundleMap]) -> Sequence[Span]:
        if not self._left:
            raise InstallError("no place")
        return super().begin(manifest, maps)

    def write(self, span: Span, data: memoryview) -> None:
        self._left -= 1
        if self._left < 0:
            raise InstallError("no place")
        super().write(span, data)


@pytest.mark.parametrize("after_chunks", [0, 1, 5])
def test_an_artifact_that_the_receiver_refuses_ends_the_transfer(
    agent: Transport, after_chunks: int
) -> None:
    artifact = make_artifact({"artifact.tar": 9 * CHUNK_SIZE})
    receiver = Refusing(after_chunks)
    with serving(artifact, slots=2) as server:
        with pytest.raises(InstallError, match="no place"):
            fetch(server.endpoint, artifact.artifact_id, agent, receiver)
        assert len(server.artifacts.leases) == 0
    assert not receiver.finished


# --- how many threads ----------------------------------------------------------------------------


class Meeting(TransferResult):
    """Notes who writes; at first, `together` writers at once wait for each other."""

    def __init__(self, together: int = 1, *, waits: bool = False) -> None:
        super().__init__()
        self.waits = waits
        self.writers: list[str] = []
        self._together = threading.Barrier(together)

    def write(self, span: Span, data: memoryview) -> None:
        self.writers.append(threading.current_thread().name)
        if len(self.writers) <= self._together.parties:
            self._together.wait(20)
        super().write(span, data)


@pytest.fixture
def one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "thread_count", lambda: 1)


NINE_CHUNKS = {"artifact.tar": 9 * CHUNK_SIZE}


@pytest.mark.usefixtures("one_core")
def test_reads_that_the_posting_thread_copies_use_one_thread_per_core(
    agent: Transport,
) -> None:
    artifact, receiver = make_artifact(NINE_CHUNKS), Meeting()
    with serving(artifact) as server:
        fetch(server.endpoint, artifact.artifact_id, agent, receiver)
    assert receiver.content == artifact.content
    assert len(receiver.writers) == 9
    assert len(set(receiver.writers)) == 1


@pytest.mark.usefixtures("one_core")
def test_while_one_waits_for_a_read_others_go_on(agent: Transport) -> None:
    artifact, stalling = make_artifact(NINE_CHUNKS), FaultyTransport(agent, {1: Stall()})

    class LettingGo(TransferResult):
        written = 0

        def write(self, span: Span, data: memoryview) -> None:
            super().write(span, data)
            self.written += 1
            if self.written == 8:
                stalling.let_go()

    with serving(artifact) as server:
        limits: dict[str, Any] = {"timeout_seconds": 20, "max_inflight_chunks": 2}
        received = fetch(server.endpoint, artifact.artifact_id, stalling, LettingGo(), **limits)
    assert received.content == artifact.content


@pytest.mark.usefixtures("one_core")
@pytest.mark.parametrize("slots", [None, 3], ids=["the receiver waits", "chunks are leased"])
def test_where_something_is_waited_for_all_threads_work(
    agent: Transport, slots: int | None
) -> None:
    artifact = make_artifact(NINE_CHUNKS)
    receiver = Meeting(together=3, waits=slots is None)
    with serving(artifact, slots=slots) as server:
        fetch(server.endpoint, artifact.artifact_id, agent, receiver, max_inflight_chunks=3)
    assert receiver.content == artifact.content


class OnlyOne(TransferResult):
    def begin(self, manifest: ArtifactManifest, maps: Mapping[int, BundleMap]) -> Sequence[Span]:
        return [span for span in super().begin(manifest, maps) if span.file_index == 1]


def test_only_wanted_files_are_transferred(agent: Transport) -> None:
    artifact = make_artifact({"a.tar": 3 * CHUNK_SIZE, "b.tar": 2 * CHUNK_SIZE, "c.tar": 1})
    events: list[Event] = []
    with serving(artifact) as server:
        received = fetch(server.endpoint, "", agent, OnlyOne(), events=events.append)
    assert received.content["/bundle/b.tar"] == artifact.content["/bundle/b.tar"]
    assert received.content["/bundle/c.tar"] == b"\0"
    assert events[0] == TransferStarted(2 * CHUNK_SIZE, 2)


def test_only_an_artifact_that_is_its_manifest_is_served(tmp_path: Path) -> None:
    artifact = make_artifact({"artifact.tar": 1})
    with serving(artifact) as server, pytest.raises(ArtifactIdMismatchError):
        server.artifacts.add_artifact(
            SOURCE_ID, "0" * 64, artifact.manifest, artifact.bundles(), slots=1
        )


class Ordered(TransferResult):
    """As the installer's: each chunk waits for those before it. One fails, and the others stop."""

    def __init__(self, failing: int) -> None:
        super().__init__()
        self._failing = failing
        self._turn = threading.Condition(threading.RLock())
        self._next = 0

    def write(self, span: Span, data: memoryview) -> None:
        assert span.chunk is not None
        number = span.chunk.chunk_index
        with self._turn:
            self._turn.wait_for(lambda: self.stopped or self._next == number)
            if self.stopped:
                raise WorkStopped
            if number == self._failing:
                self.stop()
                raise BundleError("no bundle")
            super().write(span, data)
            self._next += 1
            self._turn.notify_all()

    def stop(self) -> None:
        with self._turn:
            super().stop()
            self._turn.notify_all()


@pytest.mark.parametrize("failing", [0, 4])
def test_of_several_threads_the_one_that_failed_says_why(agent: Transport, failing: int) -> None:
    artifact = make_artifact({"artifact.tar": 9 * CHUNK_SIZE})
    for _ in range(10):
        receiver = Ordered(failing)
        with serving(artifact) as server, pytest.raises(BundleError, match="no bundle"):
            fetch(server.endpoint, artifact.artifact_id, agent, receiver, max_inflight_chunks=4)
