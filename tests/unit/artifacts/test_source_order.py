from __future__ import annotations

import logging
import random

import pytest

from mx_artifacts.artifacts.target.source_order import TargetLocality, ordering
from mx_artifacts.core.sources import SourceRef
from mx_artifacts.core.topology import shared_depth

REFS = [SourceRef("3327fe19f6fa4e35", f"worker-{n}", "model", 0) for n in range(8)]


def _order(
    selector: str, target: str = "me", seed: int = 1, refs: list[SourceRef] = REFS
) -> list[SourceRef]:
    return ordering(selector, random.Random(seed), TargetLocality(target))(refs)


def test_random_keeps_all_and_follows_the_generator() -> None:
    assert sorted(_order("random"), key=REFS.index) == REFS
    assert _order("random", seed=1) == _order("random", seed=1)
    assert len({tuple(r.worker_id for r in _order("random", seed=s)) for s in range(5)}) > 1


def test_rendezvous_is_stable_and_differs_between_targets() -> None:
    first = _order("rendezvous_hash", seed=1)
    assert first == _order("rendezvous_hash", seed=2, refs=REFS[::-1])
    assert len({_order("rendezvous_hash", target=str(t))[0].worker_id for t in range(20)}) > 1
    without = [ref for ref in REFS if ref is not first[3]]
    assert _order("rendezvous_hash", refs=without) == [r for r in first if r is not first[3]]


def test_an_unknown_name_is_random_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert _order("fastest", seed=3) == _order("random", seed=3)
    assert "fastest" in caplog.text


def test_no_candidates_is_no_error() -> None:
    assert _order("random", refs=[]) == _order("rendezvous_hash", refs=[]) == []


def _at(worker_id: str, load: float | None = None, **topology: str) -> SourceRef:
    return SourceRef("3327fe19f6fa4e35", worker_id, "model", 0, topology=topology, source_load=load)


HERE = TargetLocality("me", {"zone": "a", "rack": "7", "host": "n1"})
PLACED = [
    _at("far", 0.0, zone="b", rack="7", host="n2"),
    _at("unlabelled", 0.0),
    _at("rack", 0.9, zone="a", rack="7", host="n3"),
    _at("zone_busy", 0.8, zone="a", rack="8", host="n4"),
    _at("zone_idle", 0.0, zone="a", rack="9", host="n5"),
    _at("same_host", 1.0, zone="a", rack="7", host="n1"),
]


def _names(selector: str, refs: list[SourceRef], seed: int) -> list[str]:
    return [ref.worker_id for ref in ordering(selector, random.Random(seed), HERE)(refs)]


@pytest.mark.parametrize("seed", range(3))
def test_the_nearest_first_then_the_least_busy(seed: int) -> None:
    order = _names("topology_aware", PLACED, seed)
    assert order[:4] == ["same_host", "rack", "zone_idle", "zone_busy"]
    assert set(order[4:]) == {"far", "unlabelled"}


def test_equals_are_by_chance_and_an_unknown_load_is_middling() -> None:
    refs = [_at("idle", 0.0), _at("little", 0.1), _at("unknown"), _at("half", 0.5), _at("full", 1)]
    orders = {tuple(_names("load_aware", refs, seed)) for seed in range(20)}
    assert len(orders) == 4
    for order in orders:
        assert set(order[:2]) == {"idle", "little"}
        assert order[4] == "full"


@pytest.mark.parametrize(
    ("ours", "theirs", "depth"),
    [
        ({"zone": "a"}, {}, -1),
        ({"zone": "a"}, {"zone": "a"}, 0),
        ({"rack": "7"}, {"rack": "7"}, 1),
        ({"zone": "a", "rack": "7"}, {"zone": "b", "rack": "7"}, -1),
        ({"zone": "a", "rack": "7"}, {"zone": "a"}, 0),
        ({"shelf": "1"}, {"shelf": "1"}, -1),
    ],
)
def test_depth_ends_at_the_first_difference(
    ours: dict[str, str], theirs: dict[str, str], depth: int
) -> None:
    assert shared_depth(ours, theirs, ("zone", "rack")) == depth
