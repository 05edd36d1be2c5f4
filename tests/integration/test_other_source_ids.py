"""A central server that computes other source ids: by plain UTF-8, or without a field."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mx_artifacts.core.identity import (
    SourceIdentity,
    compute_mx_source_id,
    unescaped_mx_source_id,
)
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.identity.identify import probe_identity
from tests.support.fleet import KIND, Fleet, fill_cache
from tests.support.install_cases import contents
from tests.support.older_server import OlderServer, running_older_server

IDENTITY = probe_identity(
    KIND, model_name="org/mödel", overrides={"backend_framework": "vllm"}
).identity
OURS, SERVERS = compute_mx_source_id(IDENTITY), unescaped_mx_source_id(IDENTITY)


def without_machine(identity: SourceIdentity) -> str:
    return compute_mx_source_id(identity.with_fields(extra_parameters={}))


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[OlderServer]:
    """By default one that does not escape, as the reference's Rust server."""
    source_id = getattr(request, "param", unescaped_mx_source_id)
    with running_older_server(OlderServer(source_id)) as server:
        yield server


@pytest.fixture
def fleet(server: OlderServer, tmp_path: Path) -> Iterator[Fleet]:
    with ExitStack() as resources:
        yield Fleet(server.address, tmp_path, resources)


def test_a_non_ascii_model_is_published_under_the_servers_id(
    server: OlderServer, fleet: Fleet, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert OURS != SERVERS
    cache = fill_cache(tmp_path / "warm")
    publisher = fleet.publisher()
    published = publisher.publish(KIND, IDENTITY, {"": cache})
    assert published.mx_source_id == SERVERS
    told = f"computed the source id {SERVERS} for model 'org/mödel', but this node computed {OURS}"
    assert told in caplog.text
    fetched = fleet.fetch(fleet.fetcher(), tmp_path / "cold", IDENTITY)
    assert contents(tmp_path / "cold") == contents(cache)
    assert fetched.source.mx_source_id == SERVERS

    (cache / "new.bin").write_bytes(b"new")
    again = publisher.republish(published)
    assert again.mx_source_id == SERVERS
    fleet.fetch(fleet.fetcher(), tmp_path / "again", IDENTITY)
    assert contents(tmp_path / "again") == contents(cache)
    # Nothing of the artifact before is served under either id.
    served = publisher.start().artifacts._catalogue.all()
    assert [each.artifact_id for each in served] == [again.artifact_id]
    publisher.close()
    assert [record.worker.status for record in server.records.values()] == [3]  # STALE


def test_a_second_identity_is_served_under_the_servers_id_too(
    server: OlderServer, fleet: Fleet, tmp_path: Path
) -> None:
    cache = fill_cache(tmp_path / "warm")
    other = IDENTITY.with_fields(revision="r2")
    published = fleet.publisher().publish(KIND, IDENTITY, {"": cache}, also=[other])
    assert published.also_source_ids == (unescaped_mx_source_id(other),)
    for number, identity in enumerate((IDENTITY, other)):
        root = tmp_path / f"cold{number}"
        fleet.fetch(fleet.fetcher(), root, identity)
        assert contents(root) == contents(cache)


def test_a_seed_is_found_under_the_servers_id(
    server: OlderServer, fleet: Fleet, tmp_path: Path
) -> None:
    cache = fill_cache(tmp_path / "warm")
    publisher = fleet.publisher()
    publisher.publish(KIND, IDENTITY, {"": cache})
    fleet.fetch(fleet.fetcher(seed=True), tmp_path / "seed", IDENTITY)
    publisher.close()
    fetched = fleet.fetch(fleet.fetcher(), tmp_path / "cold", IDENTITY)
    assert contents(tmp_path / "cold") == contents(cache)
    assert fetched.source.mx_source_id == SERVERS


@pytest.mark.parametrize("server", [without_machine], indirect=True)
def test_a_server_that_does_not_know_a_field_is_not_published_to(
    server: OlderServer, fleet: Fleet, tmp_path: Path
) -> None:
    """It would file caches that differ in it under one id."""
    with pytest.raises(ConfigurationError, match="computed the source id") as raised:
        fleet.publisher().publish(KIND, IDENTITY, {"": fill_cache(tmp_path / "warm")})
    assert "does not know every field" in raised.value.hint()
