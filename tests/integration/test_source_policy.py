"""Targets read from those sources that the policy says; sources say where and how busy they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from mx_artifacts.client.worker import WorkerClient
from mx_artifacts.core.sources import SourceQuery, SourceRef, SourceStatus
from mx_artifacts.publisher import ArtifactPublisher
from tests.support.fleet import IDENTITY, Fleet, fill_cache, running_fleet
from tests.support.install_cases import contents

NEAR, FAR = {"zone": "a", "host": "n1"}, {"zone": "b", "host": "n2"}


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with running_fleet(tmp_path) as fleet:
        yield fleet


def _ready(fleet: Fleet) -> Mapping[str, SourceRef]:
    """Return the ready sources by their workers' ids."""
    listed = fleet.client().list_sources(SourceQuery(status=SourceStatus.READY), IDENTITY)
    return {ref.worker_id: ref for ref in listed}


def _beat(publisher: ArtifactPublisher) -> None:
    for serving in publisher._serving:
        for each in serving.source.advertisements:
            each.report_now(30)


def test_the_nearest_are_read_from_also_those_that_come_later(fleet: Fleet, tmp_path: Path) -> None:
    cache = fill_cache(tmp_path / "warm")
    for place in (FAR, NEAR) * 5:
        fleet.publish(cache, topology=place)
    fetcher = fleet.fetcher(selector="topology_aware", topology={"zone": "a", "host": "n3"})
    first = fetcher.discover(IDENTITY)
    assert [each.topology["zone"] for each in first] == ["a"] * 5 + ["b"] * 5
    later = fetcher._finder.find_others(IDENTITY, first[0].artifact_id, {})
    near = {each.worker_grpc_endpoint for each in first[:5]}
    assert {each.endpoint for each in later[:5]} == near
    assert fleet.fetch(fetcher, tmp_path / "cold").source.topology["zone"] == "a"


def test_a_seed_announces_its_place_and_its_artifact(fleet: Fleet, tmp_path: Path) -> None:
    cache = fill_cache(tmp_path / "warm")
    publisher, published = fleet.publish(cache, topology=NEAR)
    origin = _ready(fleet)[published.worker_id].topology
    fleet.fetch(fleet.fetcher(seed=True, topology=FAR), tmp_path / "seed")
    (seed,) = [ref for name, ref in _ready(fleet).items() if name != published.worker_id]
    assert origin.items() >= NEAR.items()
    assert seed.topology == {**origin, **FAR}
    publisher.close()
    fleet.fetch(fleet.fetcher(), tmp_path / "cold")
    assert contents(tmp_path / "cold") == contents(cache)


def test_a_source_that_is_read_from_is_left_to_others(fleet: Fleet, tmp_path: Path) -> None:
    cache = fill_cache(tmp_path / "warm")
    busy, published = fleet.publish(cache)
    assert _ready(fleet)[published.worker_id].source_load == 0.0
    with WorkerClient(published.endpoint, timeout_seconds=10.0) as reader:
        assert reader.attach()
        _beat(busy)
        assert _ready(fleet)[published.worker_id].source_load == pytest.approx(0.2)
        _, idle = fleet.publish(cache)
        for _ in range(5):
            first = fleet.fetcher(selector="load_aware").discover(IDENTITY)[0]
            assert first.worker_id == idle.worker_id
