"""More targets than a source has slots, all at once, in processes of their own."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

from tests.support.install_cases import contents, leftovers
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


def test_eight_installers_of_one_root_transfer_once(cluster: Cluster, tmp_path: Path) -> None:
    """The others wait, and find it there. Whoever reads meanwhile never sees a short file."""
    cache, root = warm_cache(tmp_path / "warm", 2 << 20), tmp_path / "cold"
    expected = read_tree(cache)
    with cluster.source(cache), ExitStack() as stack:
        installers = [stack.enter_context(cluster.target(root)) for _ in range(8)]
        while any(installer.process.poll() is None for installer in installers):
            assert read_tree(root).items() <= expected.items()
            time.sleep(0.005)
        ends = [installer.end() for installer in installers]
    assert [code for code, _ in ends] == [0] * 8, ends
    transferred = [done["installed"][0]["total_bytes"] > 0 for _, done in ends]
    assert sorted(transferred) == [False] * 7 + [True]
    assert read_tree(root) == expected
    assert leftovers(root) == []
    assert cluster.staged() == []


def test_a_target_that_cannot_seed_installs_and_ends(
    cluster: Cluster, cache: Path, tmp_path: Path
) -> None:
    with cluster.source(cache):
        code, done = cluster.fetch(tmp_path / "cold", "--seed", MX_ARTIFACT_RESIDENT_BUDGET="1000")
    assert code == 0, done
    assert contents(tmp_path / "cold") == contents(cache)


def test_a_target_seeds_until_a_signal(cluster: Cluster, cache: Path, tmp_path: Path) -> None:
    with cluster.source(cache) as source, cluster.target(tmp_path / "first", "--seed") as seed:
        assert seed.expect("result")
        source.stop()
        code, done = cluster.fetch(tmp_path / "second")
        assert code == 0, done
        assert seed.stop() == 0
    assert contents(tmp_path / "second") == contents(cache)
    assert {found["status"] for found in cluster.sources()} == {"stale"}
