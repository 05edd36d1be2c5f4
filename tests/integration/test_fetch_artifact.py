"""A target and a real gRPC source, over the in-process transport."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mx_artifacts.errors import (
    ArtifactIdMismatchError,
    InstallError,
    PeerLostError,
    RecordNotFoundError,
)
from mx_artifacts.observability.events import Event, EventSink, drop
from mx_artifacts.transfer.engine import ReceivedArtifact, fetch_artifact
from mx_artifacts.transport.base import Transport
from tests.support.artifacts import (
    CHUNK_SIZE,
    SOURCE_ID,
    make_artifact,
    new_agent,
    serving,
)


@pytest.fixture
def agent() -> Iterator[Transport]:
    agent = new_agent("target")
    yield agent
    agent.close()


def fetch(
    endpoint: str,
    artifact_id: str,
    agent: Transport,
    directory: Path,
    events: EventSink = drop,
    timeout_seconds: float = 60,
) -> ReceivedArtifact:
    return fetch_artifact(
        endpoint,
        SOURCE_ID,
        artifact_id,
        agent,
        directory,
        timeout_seconds=timeout_seconds,
        max_inflight_chunks=3,
        events=events,
    )


def contents(received: ReceivedArtifact) -> dict[str, bytes]:
    return {path: file.read_bytes() for path, file in received.files.items()}


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
        received = fetch(server.endpoint, artifact.artifact_id, agent, tmp_path / "target")
    assert contents(received) == artifact.content
    assert (received.manifest, received.artifact_id) == (artifact.manifest, artifact.artifact_id)
    assert sorted(f.name for f in (tmp_path / "target").iterdir()) == sorted(sizes)


def test_events_add_up(tmp_path: Path, agent: Transport) -> None:
    artifact = make_artifact({"artifact.tar": 5 * CHUNK_SIZE + 1})
    events: list[Event] = []
    with serving(artifact) as server:
        fetch(server.endpoint, "", agent, tmp_path / "target", events.append)
    size = {"total_bytes": artifact.manifest.total_size, "chunk_count": 6}
    assert events[0] == Event("transfer.started", size)
    assert events[-1] == Event("transfer.finished", size)
    assert {event.name for event in events[1:-1]} == {"transfer.chunk"}
    assert sum(e.fields["length_bytes"] for e in events[1:-1]) == artifact.manifest.total_size


def test_a_table_of_many_pages_arrives(tmp_path: Path, agent: Transport) -> None:
    artifact = make_artifact({"artifact.tar": 1030}, chunk_size=1)
    with serving(artifact) as server:
        received = fetch(server.endpoint, artifact.artifact_id, agent, tmp_path / "target")
    assert contents(received) == artifact.content


def test_one_agent_may_fetch_twice_at_once_and_again(tmp_path: Path, agent: Transport) -> None:
    artifact = make_artifact({"artifact.tar": 20 * CHUNK_SIZE})
    with serving(artifact, slots=2) as server, ThreadPoolExecutor(2) as both:
        for turn in range(2):
            fetches = [
                both.submit(
                    fetch, server.endpoint, artifact.artifact_id, agent, tmp_path / f"{turn}{n}"
                )
                for n in range(2)
            ]
            assert [contents(f.result()) for f in fetches] == [artifact.content] * 2


def test_sixteen_targets_share_four_slots(tmp_path: Path) -> None:
    artifact = make_artifact({"artifact.tar": 24 * CHUNK_SIZE})
    start = threading.Barrier(16)

    def target(number: int) -> bool:
        agent = new_agent("target")
        start.wait()
        try:
            received = fetch(server.endpoint, artifact.artifact_id, agent, tmp_path / str(number))
            return contents(received) == artifact.content
        finally:
            agent.close()

    with serving(artifact, slots=4) as server, ThreadPoolExecutor(16) as targets:
        assert list(targets.map(target, range(16))) == [True] * 16


def test_what_the_source_does_not_have_is_not_found(tmp_path: Path, agent: Transport) -> None:
    artifact = make_artifact({"artifact.tar": 1})
    with serving(artifact) as server:
        with pytest.raises(RecordNotFoundError, match=server.endpoint):
            fetch(server.endpoint, "0" * 64, agent, tmp_path / "target")
        server.remove_artifact(SOURCE_ID, artifact.artifact_id)
        with pytest.raises(RecordNotFoundError):
            fetch(server.endpoint, artifact.artifact_id, agent, tmp_path / "target")
    assert not (tmp_path / "target").exists()


def test_nobody_there_names_the_endpoint(tmp_path: Path, agent: Transport) -> None:
    with pytest.raises(PeerLostError, match=r"127\.0\.0\.1:1 is gone") as caught:
        fetch("127.0.0.1:1", "0" * 64, agent, tmp_path / "target")
    assert caught.value.retryable


def test_files_in_the_way_stay(tmp_path: Path, agent: Transport) -> None:
    artifact = make_artifact({"artifact.tar": 1})
    there = tmp_path / "target" / "artifact.tar"
    there.parent.mkdir()
    there.write_text("mine")
    with serving(artifact) as server, pytest.raises(InstallError, match="exists already"):
        fetch(server.endpoint, artifact.artifact_id, agent, tmp_path / "target")
    assert there.read_text() == "mine"


def test_only_an_artifact_that_is_its_manifest_is_served(tmp_path: Path) -> None:
    artifact = make_artifact({"artifact.tar": 1})
    with serving(artifact) as server, pytest.raises(ArtifactIdMismatchError):
        server.add_artifact(SOURCE_ID, "0" * 64, artifact.manifest, artifact.bundles(), slots=1)
