"""What the benchmarks make of their samples, and the trees that they move."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks.harness.baseline import compared
from benchmarks.harness.figure_groups import NO_PEER, NO_RSYNC
from benchmarks.harness.real_caches import MEASURED, RealCache, RealTree
from benchmarks.harness.report import (
    MUST_REACH,
    MUST_REACH_DISK,
    MUST_REACH_RSS_MIB,
    Report,
    tables,
)
from benchmarks.harness.rounds import Method, interleaved, median_ratio, summary
from benchmarks.harness.tree import GROUP, TreesDifferError, change_tree, check_equal, make_tree

MIB = 1 << 20


def test_every_round_runs_every_method_and_starts_with_another() -> None:
    order: list[str] = []

    def method(name: str) -> Method:
        def run() -> dict[str, float]:
            order.append(name)
            return {name: float(len(order))}

        return Method(name, run)

    samples = interleaved([method("a"), method("b")], 3, lambda text: None)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert samples == {"a": [1.0, 4.0, 5.0], "b": [2.0, 3.0, 6.0]}


def test_medians_keep_their_samples() -> None:
    assert summary({"a": [3.0, 1.0, 9.0]}) == {"a": {"median": 3.0, "samples": [3.0, 1.0, 9.0]}}


def test_a_ratio_is_the_median_of_the_rounds_ratios() -> None:
    # The second round ran on a machine that was ten times slower; its ratio is as good.
    samples = {"a": [2.0, 30.0, 5.0], "b": [1.0, 10.0, 1.0]}
    assert median_ratio(samples, "a", "b") == 3.0
    assert median_ratio(samples, "a", "absent") is None
    assert median_ratio(samples, "absent", "b") is None


def test_a_report_says_why_a_figure_is_missing() -> None:
    report = Report({}, samples={"seal": [3.0], "tar_cf": [2.0]})
    report.why_not |= {"memory": "no disk", "fanout": "failed: x"}
    report.samples |= {"fetch_tmpfs": [1.0], "cp_tmpfs": [1.0], "cli_process": [1.0]}
    report.why_not |= {"disk": "not asked for", "incremental": "not asked for"}
    report.samples |= {"fetch_triton": [1.0], "cp_triton": [1.0], "tar_pipe_triton": [1.0]}
    report.why_not |= {f"real/{name}": f"no {name} here" for name in MEASURED if name != "triton"}
    links = "no shaped links here: x"
    report.why_not |= {"seeding": links, "resume": links}
    made = report.as_dict()
    assert made["ratios"].keys() == MUST_REACH.keys()
    assert made["ratios"]["seal_over_tar"] == 1.5
    assert made["reasons"]["fanout16_over_serial"] == "failed: x"
    assert made["reasons"]["cli_over_reference"] == NO_PEER
    assert made["reasons"]["seeding8_over_one"] == links
    assert made["rss_mib"] == dict.fromkeys(MUST_REACH_RSS_MIB)
    missing = {name for name, ratio in made["ratios"].items() if ratio is None}
    missing |= {name for name, figure in made["seconds"].items() if figure is None}
    assert made["reasons"].keys() == missing | MUST_REACH_RSS_MIB.keys() | MUST_REACH_DISK.keys()
    assert all(made["reasons"].values())
    assert made["reasons"]["fetch_inductor"] == "no inductor here"
    assert made["reasons"]["rsync_triton"] == NO_RSYNC
    assert made["reasons"]["reference_triton"] == NO_PEER
    assert "| cp_vllm | no vllm here |" in tables(made)
    assert "| seal_over_tar | 1.500 | ≤ 1.5 |" in tables(made)


def test_equal_seeds_give_equal_trees_of_about_the_size(tmp_path: Path) -> None:
    first = make_tree(tmp_path / "a", mib=1, files=80)
    make_tree(tmp_path / "b", mib=1, files=80)
    assert (first.files, first.directories) == (80, 10)
    assert MIB <= first.file_bytes < 1.1 * MIB
    check_equal(tmp_path / "a", tmp_path / "b", relocated=True)
    with pytest.raises(TreesDifferError, match="__grp__"):
        check_equal(tmp_path / "a", tmp_path / "b", relocated=False)


def test_a_change_is_found_and_keeps_the_size(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "a", mib=1, files=80)
    shutil.copytree(tree.root, tmp_path / "b")
    check_equal(tree.root, tmp_path / "b", relocated=False)
    changed = change_tree(tree, fraction=0.1, generation=1)
    assert 0 < changed < tree.file_bytes / 2
    assert sum(p.stat().st_size for p in tree.root.rglob("*.*")) == tree.file_bytes
    with pytest.raises(TreesDifferError, match="other bytes"):
        check_equal(tree.root, tmp_path / "b", relocated=False)
    shutil.rmtree(next((tmp_path / "b").iterdir()))
    with pytest.raises(TreesDifferError, match="too few"):
        check_equal(tree.root, tmp_path / "b", relocated=False)


def test_an_installed_real_cache_may_differ_where_it_named_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.harness.real_caches._lacking", lambda name, cache: "")
    cache = RealCache("triton", tmp_path, tmp_path)
    made = make_tree(tmp_path / "a", mib=0.1, files=16)
    tree, copy = RealTree(made.root, made.files, made.file_bytes), tmp_path / "b"
    shutil.copytree(tree.root, copy)
    groups = list(copy.rglob(GROUP))
    for group in groups:
        group.write_text(group.read_text().replace(str(tree.root), str(copy)))
    (copy / ".staging").mkdir()  # never shipped, so it is no difference
    cache.check_installed(tree, copy)
    groups[0].write_text(f"{tree.root}")
    with pytest.raises(TreesDifferError, match=GROUP):
        cache.check_installed(tree, copy)
    shutil.rmtree(groups[0].parent)
    with pytest.raises(TreesDifferError, match="too few"):
        cache.check_installed(tree, copy)
    shutil.copytree(tree.root / groups[0].parent.name, groups[0].parent)
    (groups[0].parent / "k.cubin").write_bytes(b"other")
    with pytest.raises(TreesDifferError, match="other bytes"):
        cache.check_installed(tree, copy)


def test_a_ratio_is_worse_only_if_neither_spread_explains_it() -> None:
    baseline = {
        "ratios": {"a": 1.0, "b": 1.0, "c": 1.0, "d": None},
        "ratio_spreads": {"a": (0.9, 1.2), "b": (0.9, 1.2), "c": (0.9, 1.2)},
    }
    report = {
        "ratios": {"a": 1.3, "b": 1.3, "c": 1.1, "d": 9.0},
        "ratio_spreads": {"a": (1.1, 1.4), "b": (0.95, 1.4), "c": (1.05, 1.2)},
    }
    table, worse = compared(report, baseline)
    assert worse == ["a"]
    assert "| a | 1.000 (0.900 to 1.200) | 1.300 (1.100 to 1.400) | WORSE |" in table
    assert "| d |" not in table
