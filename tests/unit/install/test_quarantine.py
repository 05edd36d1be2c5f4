"""Artifacts that this node must not fetch, and the fetcher that passes them over."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

import pytest

from mx_artifacts import settings
from mx_artifacts.artifacts.factories import triton_cache_artifact_transfer
from mx_artifacts.artifacts.target.discover import discover_artifact_source
from mx_artifacts.artifacts.target.fetch_values import FetcherSettings
from mx_artifacts.client.central import CentralClient
from mx_artifacts.core.identity import SourceIdentity, SourceType, compute_mx_source_id
from mx_artifacts.core.sources import (
    ArtifactSummary,
    SourceQuery,
    SourceRef,
    SourceStatus,
    StoredWorker,
    WorkerRecord,
)
from mx_artifacts.errors import ConfigurationError, IncompatibleSourceError
from mx_artifacts.fetcher import ArtifactFetcher
from mx_artifacts.install.quarantine import Quarantine
from mx_artifacts.runtime.clock import FakeClock
from mx_artifacts.transport.base import Transport

BAD, GOOD = "ba" * 32, "90" * 32
IDENTITY = SourceIdentity(mx_source_type=SourceType.TRITON_CACHE, model_name="m")


class Server:
    """Two workers of one identity, which serve different artifacts."""

    def list_sources(
        self, query: SourceQuery, identity: SourceIdentity | None = None
    ) -> list[SourceRef]:
        return [SourceRef(compute_mx_source_id(IDENTITY), worker, "m", 0) for worker in (BAD, GOOD)]

    def get_metadata(self, mx_source_id: str, worker_id: str) -> StoredWorker:
        summary = ArtifactSummary(worker_id, 1, 1, 1)
        record = WorkerRecord(
            status=SourceStatus.READY, worker_grpc_endpoint="h:1", artifact=summary
        )
        return StoredWorker(mx_source_id, worker_id, IDENTITY, record)


def no_transport() -> Transport:
    raise AssertionError("discovery needs no transport")


def fetcher(state: Path) -> ArtifactFetcher:
    return ArtifactFetcher(
        client=cast(CentralClient, Server()),
        transport_factory=no_transport,
        settings=FetcherSettings.from_environment(
            env={}, bundle_root=state / "bundles", state_directory=state
        ),
        clock=FakeClock(),
    )


def test_in_and_out(tmp_path: Path) -> None:
    quarantine = Quarantine(tmp_path / "state")
    assert quarantine.artifacts() == {}
    quarantine.add(BAD, "crashed", FakeClock(0))
    assert quarantine.add(BAD, "crashed at start", FakeClock(0)).since.startswith("1970-01-01")
    assert [entry.reason for entry in quarantine.artifacts().values()] == ["crashed at start"]
    assert quarantine.remove(BAD)
    assert not quarantine.remove(BAD)
    assert quarantine.artifacts() == {}


@pytest.mark.parametrize("text", ["", "ba", "../" + "ba" * 30, "BA" * 32, BAD + "\n"])
def test_only_artifact_ids_go_in(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError, match="artifact id"):
        Quarantine(tmp_path).add(text, "why")
    assert list(tmp_path.rglob("*.json")) == []


def test_a_quarantine_that_cannot_be_read_is_not_an_empty_one(tmp_path: Path) -> None:
    quarantine = Quarantine(tmp_path)
    quarantine.add(BAD, "crashed")
    (tmp_path / f"quarantine/{BAD}.json").write_text("{")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        fetcher(tmp_path).discover(IDENTITY)


def test_the_fetcher_takes_the_other_artifact(tmp_path: Path) -> None:
    ids = {source.artifact_id for source in fetcher(tmp_path).discover(IDENTITY)}
    assert ids == {BAD, GOOD}
    Quarantine(tmp_path).add(BAD, "it crashed the engine")
    assert [s.artifact_id for s in fetcher(tmp_path).discover(IDENTITY)] == [GOOD]


def test_with_all_of_them_in_it_says_why(tmp_path: Path) -> None:
    for artifact_id in (BAD, GOOD):
        Quarantine(tmp_path).add(artifact_id, "it crashed the engine")
    with pytest.raises(IncompatibleSourceError) as caught:
        fetcher(tmp_path).discover(IDENTITY)
    for reason in caught.value.reasons.values():
        assert "quarantined on this node, because it crashed the engine" in reason


def test_loaders_honour_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's own calls, which know the state directory from the environment only."""
    monkeypatch.setenv("MX_STATE_DIR", str(tmp_path))
    client = cast(CentralClient, Server())
    transfer = triton_cache_artifact_transfer(tmp_path, tmp_path, tmp_path)
    Quarantine(tmp_path).add(BAD, "it crashed the engine")
    assert discover_artifact_source(client, IDENTITY).artifact_id == GOOD
    Quarantine(tmp_path).add(GOOD, "so did this one")
    with pytest.raises(IncompatibleSourceError, match="because so did this one"):
        transfer.discover_and_transfer(client, IDENTITY, cast(Transport, None))


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"MX_STATE_DIR": "/s", "XDG_STATE_HOME": "/x", "HOME": "/h"}, "/s"),
        ({"XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/mx-artifacts"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/h"}, "/h/.local/state/mx-artifacts"),
        ({}, f"mx-artifacts-state-{os.getuid()}"),
    ],
)
def test_the_state_directory_needs_no_home(env: dict[str, str], expected: str) -> None:
    assert str(settings.STATE_DIR.read(env=env)).endswith(expected)
