"""The model of a fleet: what must hold of it whatever its service times are."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import simulate
from benchmarks.harness.swarm import Policy, Service, one_after_the_other, swarm, tree

LINK_ONLY = Service(1.0, 1e-6, 0.0, 0.0, 0.0)
"""A span takes a second, and nothing else takes any time."""
SPANS = 64


def test_one_node_takes_as_long_as_its_spans() -> None:
    service = Service(1.0, 0.1, 0.2, 0.3, 0.4)
    assert one_after_the_other(1, SPANS, service) == pytest.approx(SPANS + 1.0)
    # It waits for each first byte, since it reads one span at a time of the only source.
    assert swarm(1, SPANS, service, Policy()) == pytest.approx(SPANS * 1.3 + 0.8, abs=0.2)
    two = replace(Policy(), reads_per_source=2)
    assert swarm(1, SPANS, service, two) == pytest.approx(SPANS + 1.0, abs=1.1)


def test_without_seeding_nodes_wait_for_each_other_and_a_tree_doubles() -> None:
    alone = one_after_the_other(1, SPANS, LINK_ONLY)
    assert one_after_the_other(10, SPANS, LINK_ONLY) == pytest.approx(10 * alone)
    assert [round(tree(nodes, SPANS, LINK_ONLY) / alone) for nodes in (1, 2, 3, 4, 1000)] == [
        *(1, 2, 2, 3, 10),
    ]


def test_a_swarm_cannot_beat_its_links_and_is_far_from_one_after_the_other() -> None:
    seconds = swarm(32, SPANS, LINK_ONLY, Policy())
    assert SPANS < seconds < 2.5 * SPANS


def test_nodes_that_read_in_the_same_order_have_nothing_for_each_other() -> None:
    in_order = replace(Policy(leases=100), order="sequential")
    assert swarm(8, SPANS, LINK_ONLY, in_order) > 7 * SPANS
    for order in ("random", "rarest", "rarest_of_sample"):
        by_chance = replace(in_order, order=order)
        assert swarm(8, SPANS, LINK_ONLY, by_chance) < 3 * SPANS


def test_equal_seeds_give_equal_times() -> None:
    first, again, other = (swarm(20, 16, LINK_ONLY, Policy(), seed) for seed in (1, 1, 2))
    assert first == again != other


def test_the_program_prints_and_writes_every_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "bench" / "simulation.json"
    words = ["simulate", "--nodes", "2,8", "--mib", "64", "--output", str(output)]
    monkeypatch.setattr(sys, "argv", words)
    assert simulate.main() == 0
    rows = json.loads(output.read_text())["ratios"]
    assert [row["nodes"] for row in rows] == [2, 8]
    assert all(row["no_seeding"] > row["seed_while_receiving"] > 1 for row in rows[1:])
    assert "| 8 | 8 |" in capsys.readouterr().out
