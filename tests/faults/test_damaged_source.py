"""A source whose served bytes are damaged serves them no longer, once a target has shown it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from mx_artifacts.client.worker import WorkerClient
from mx_artifacts.core.sources import SourceQuery, SourceStatus
from mx_artifacts.errors import ChunkChecksumError, RecordNotFoundError, TransferFailedError
from mx_artifacts.observability.catalogue import ArtifactDamaged
from mx_artifacts.observability.events import Event
from mx_artifacts.transport.faults import Corrupt, FaultyTransport
from tests.support.artifacts import (
    CHUNK_SIZE,
    ArtifactServer,
    SealedArtifact,
    make_artifact,
    new_agent,
    serving,
)
from tests.support.fleet import IDENTITY, Fleet, fill_cache, running_fleet
from tests.support.install_cases import contents
from tests.support.received import fetch

WAIT_SECONDS = 20.0


@pytest.fixture(name="fleet")
def _fleet(tmp_path: Path) -> Iterator[Fleet]:
    with running_fleet(tmp_path) as fleet:
        yield fleet


@pytest.fixture(name="artifact")
def _artifact() -> SealedArtifact:
    return make_artifact({"artifact.tar": 3 * CHUNK_SIZE})


@pytest.fixture(name="events")
def _events() -> list[Event]:
    return []


@pytest.fixture(name="server")
def _server(artifact: SealedArtifact, events: list[Event]) -> Iterator[ArtifactServer]:
    with serving(artifact) as server:
        server.artifacts._events = events.append
        yield server


def damage(server: ArtifactServer, offset: int) -> None:
    (served,) = server.artifacts._catalogue.all()
    with served.source.block(0, 0, served.manifest.files[0].size) as content:
        content[offset] ^= 1


def test_a_source_that_finds_no_damage_serves_on(
    server: ArtifactServer, artifact: SealedArtifact, events: list[Event]
) -> None:
    with WorkerClient(server.endpoint, timeout_seconds=WAIT_SECONDS) as client:
        part = (0, CHUNK_SIZE + 5, 10)
        assert client.extension.report_damage(artifact.ref, part, WAIT_SECONDS) is False
        assert client.header(artifact.ref).artifact_id == artifact.artifact_id
    assert events == []


def test_a_damaged_artifact_is_served_no_longer(
    server: ArtifactServer, artifact: SealedArtifact, events: list[Event]
) -> None:
    damage(server, CHUNK_SIZE + 5)
    with WorkerClient(server.endpoint, timeout_seconds=WAIT_SECONDS) as client:
        intact, damaged = (0, 0, CHUNK_SIZE), (0, CHUNK_SIZE, 1)
        assert client.extension.report_damage(artifact.ref, intact, WAIT_SECONDS) is False
        assert client.extension.report_damage(artifact.ref, damaged, WAIT_SECONDS) is True
        with pytest.raises(RecordNotFoundError, match="is damaged here"):
            client.header(artifact.ref)
    assert not server.artifacts.is_intact(artifact.ref.mx_source_id, artifact.artifact_id)
    (event,) = events
    assert isinstance(event, ArtifactDamaged)
    assert event.damage.startswith("chunk 1: ")


@pytest.mark.parametrize("part", [(0, 0, 0), (7, 0, 1), (0, 1 << 60, 1), (0, 0, 1 << 40)])
def test_an_invalid_damage_report_reads_nothing(
    server: ArtifactServer, artifact: SealedArtifact, part: tuple[int, int, int]
) -> None:
    damage(server, 0)
    with WorkerClient(server.endpoint, timeout_seconds=WAIT_SECONDS) as client:
        assert client.extension.report_damage(artifact.ref, part, WAIT_SECONDS) is None
        assert client.header(artifact.ref).artifact_id == artifact.artifact_id


def test_bytes_that_are_changed_on_their_way_are_not_the_sources_fault(
    server: ArtifactServer, artifact: SealedArtifact
) -> None:
    transport = FaultyTransport(new_agent("target"), {n: Corrupt() for n in range(1, 100)})
    with closing(transport), pytest.raises(ChunkChecksumError, match="it is intact there"):
        fetch(server.endpoint, artifact.artifact_id, transport)
    assert server.artifacts.is_intact(artifact.ref.mx_source_id, artifact.artifact_id)


def test_a_damaged_source_becomes_stale_and_others_are_read(fleet: Fleet, tmp_path: Path) -> None:
    cache = fill_cache(tmp_path / "warm")
    publisher, _ = fleet.publish(cache)
    (served,) = publisher.start().artifacts._catalogue.all()
    with served.source.block(0, 0, served.manifest.files[0].size) as content:
        for offset in range(0, content.nbytes, 97):  # headers are not read, contents are
            content[offset] ^= 1
    with pytest.raises(TransferFailedError, match="it is damaged there"):
        fleet.fetch(fleet.fetcher(), tmp_path / "first")
    assert not (tmp_path / "first").exists()

    for advertisement in publisher.start()._advertisements:
        advertisement.report_now(WAIT_SECONDS)
    ready = SourceQuery(status=SourceStatus.READY)
    assert fleet.client().list_sources(ready, IDENTITY) == []

    fleet.publish(cache)
    fleet.fetch(fleet.fetcher(), tmp_path / "second")
    assert contents(tmp_path / "second") == contents(cache)
