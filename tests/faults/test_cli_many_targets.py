"""More targets than a source has slots, all at once, in processes of their own."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from tests.support.nodes import Cluster, warm_cache
from tests.support.trees import read_tree

TARGETS = 16


def test_sixteen_targets_of_four_slots_all_get_everything(cluster: Cluster, tmp_path: Path) -> None:
    cache = warm_cache(tmp_path / "warm", 2 << 20)
    options = ("--slots", "4", "--chunk-size", "64KiB")
    with cluster.source(cache, *options, MX_ARTIFACT_RESIDENT_BUDGET="1"), ExitStack() as stack:
        roots = [tmp_path / f"cold{number}" for number in range(TARGETS)]
        targets = [stack.enter_context(cluster.target(root)) for root in roots]
        ends = [target.end() for target in targets]
    assert [code for code, _ in ends] == [0] * TARGETS, ends
    expected = read_tree(cache)
    assert all(read_tree(root) == expected for root in roots)
    assert cluster.staged() == []
