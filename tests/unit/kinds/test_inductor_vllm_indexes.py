"""The fix-up of vLLM's index files (pain 2.1): older engines read the paths in them."""

from __future__ import annotations

import ast
import os
import pprint
from pathlib import Path
from typing import Any

import pytest

from mx_artifacts.kinds.existing_entries import existing_entry_judge
from mx_artifacts.kinds.inductor.vllm_indexes import relocate_vllm_indexes
from mx_artifacts.kinds.registry import get_kind
from tests.support.kind_trees import ARTIFACT

TREE = "0a1b2c3d4e"
INDEX = f"{TREE}/rank_0_0/backbone/vllm_compile_cache.py"
OLD, ROOT = "/a/vllm/torch_compile_cache", Path("/b/vllm/torch_compile_cache")
KEY = ((1, 8192), 0, "inductor_standalone")
MTIME_NS = 1_600_000_000_123_456_789


def make(staged: Path, index: Any, text: str | None = None) -> Path:
    """Write a hash directory with `index`, as vLLM pretty-prints it; return the index file."""
    file = staged / INDEX
    file.parent.mkdir(parents=True)
    (file.parent / ARTIFACT).write_bytes(b"code of another form")
    inner = staged / TREE / "rank_0_0/inductor_cache/ab/cab.py"
    inner.parent.mkdir(parents=True)
    inner.write_bytes(b"wrapper")
    file.write_text(pprint.PrettyPrinter(indent=4).pformat(index) if text is None else text)
    os.utime(file, ns=(MTIME_NS, MTIME_NS))
    return file


def test_handles_point_at_the_final_root(tmp_path: Path) -> None:
    backbone, inductor = f"{TREE}/rank_0_0/backbone", f"{TREE}/rank_0_0/inductor_cache/ab/cab.py"
    index = {KEY: (ARTIFACT, f"{OLD}/{backbone}/{ARTIFACT}"), (2,): ["f1", f"{OLD}/{inductor}"]}
    file = make(tmp_path, index)
    before = file.read_text()
    report = relocate_vllm_indexes(tmp_path, ROOT)
    assert (report.rewritten, report.dropped, report.unverified) == (1, {}, {})
    assert ast.literal_eval(file.read_text()) == {
        KEY: (ARTIFACT, f"{ROOT}/{backbone}/{ARTIFACT}"),
        (2,): ["f1", f"{ROOT}/{inductor}"],
    }
    assert file.read_text() == before.replace(OLD, str(ROOT))
    assert file.stat().st_mtime_ns == MTIME_NS
    # In place, as a later install into the same root finds it.
    assert relocate_vllm_indexes(tmp_path, ROOT).rewritten == 0


def test_paths_that_python_spells_otherwise(tmp_path: Path) -> None:
    text = f'{{(1,): ("k", "{OLD}" "/{TREE}/rank_0_0/backbone/{ARTIFACT}")}}'
    file = make(tmp_path, None, text)
    assert relocate_vllm_indexes(tmp_path, Path("/it's")).rewritten == 1
    expected = f"/it's/{TREE}/rank_0_0/backbone/{ARTIFACT}"
    assert ast.literal_eval(file.read_text()) == {(1,): ("k", expected)}


@pytest.mark.parametrize(
    "path", ["/tmp/torchinductor_root/fx/x.py", f"{OLD}/{TREE}/../../../etc/passwd", "/etc/passwd"]
)
def test_paths_outside_the_tree_are_reported(tmp_path: Path, path: str) -> None:
    file = make(tmp_path, {KEY: (ARTIFACT, path)})
    before = file.read_bytes()
    report = relocate_vllm_indexes(tmp_path, ROOT)
    assert report.unverified == {
        TREE: f"rank_0_0/backbone/vllm_compile_cache.py names {path}, which is not part of it"
    }
    assert file.read_bytes() == before


def test_an_index_that_vllm_could_not_read_costs_its_tree(tmp_path: Path) -> None:
    make(tmp_path, None, "{(1,): ('k', '/a")
    report = relocate_vllm_indexes(tmp_path, ROOT)
    assert "vLLM cannot read it" in report.dropped[TREE]
    assert not (tmp_path / TREE).exists()


def test_other_files_of_that_name_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "vllm_compile_cache.py").write_text("import os")
    assert relocate_vllm_indexes(tmp_path, ROOT).dropped == {}


def test_a_tree_that_exists_with_paths_of_another_root_is_unverified(tmp_path: Path) -> None:
    make(tmp_path, {KEY: (ARTIFACT, f"{OLD}/{TREE}/rank_0_0/backbone/{ARTIFACT}")})
    judge = existing_entry_judge(get_kind("inductor"))
    verdict = judge(tmp_path, TREE, None)
    assert verdict.unusable_reason == ""
    assert f"names {OLD}" in verdict.unverified_reason
    relocate_vllm_indexes(tmp_path, tmp_path)
    assert judge(tmp_path, TREE, None).unverified_reason == ""


def test_an_index_that_names_what_is_not_there_costs_its_tree(tmp_path: Path) -> None:
    """The reference's publishers do not look, and vLLM does not start with it."""
    file = make(tmp_path, {KEY: (ARTIFACT, f"{OLD}/{TREE}/rank_0_0/backbone/{ARTIFACT}")})
    (file.parent / ARTIFACT).unlink()
    report = relocate_vllm_indexes(tmp_path, ROOT)
    assert report.dropped == {
        TREE: f"rank_0_0/backbone/vllm_compile_cache.py names {ARTIFACT}, which is missing"
    }
    assert not (tmp_path / TREE).exists()
