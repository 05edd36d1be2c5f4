"""Real caches of real compilers, moved to another root, are hit in a fresh process.

"Moved" is what installing does without the network: copied, mtimes lost, the kind's fix-ups run
for the final root, renamed there, and the original deleted.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from mx_artifacts import settings
from mx_artifacts.bundle.tree import scan_tree
from mx_artifacts.kinds.base import CacheKind, FixupReport
from mx_artifacts.kinds.registry import get_kind

PROGRAMS = Path(__file__).parent.parent / "support" / "caches"
TRITON, INDUCTOR = get_kind("triton"), get_kind("inductor")


def run_program(name: str, *arguments: str, **variables: object) -> dict:
    """Run a cache program in a fresh process; return the JSON line that it prints."""
    env = {**settings.environment(), **{key: str(value) for key, value in variables.items()}}
    done = subprocess.run(
        [sys.executable, PROGRAMS / name, *arguments], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    result: dict = json.loads(done.stdout.splitlines()[-1])
    assert result["errors"] == []
    return result


def stage(kind: CacheKind, source: Path, staged: Path) -> None:
    """Copy what the kind ships; modification times are lost."""
    for member in scan_tree(source, kind.pack).members:
        target = staged / member.path
        if member.is_dir:
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / member.path, target)
            os.utime(target, (0, 0))


def move(kind: CacheKind, source: Path, root: Path, *, fix: bool) -> list[FixupReport]:
    staged = root.with_name(root.name + ".staged")
    stage(kind, source, staged)
    reports = [fixup(staged, root) for fixup in kind.fixups] if fix else []
    shutil.rmtree(source)
    staged.rename(root)
    return reports


@pytest.fixture(scope="module")
def triton_cache(tmp_path_factory) -> Path:
    if find_spec("triton") is None:
        pytest.skip("triton is not installed")
    root = tmp_path_factory.mktemp("made") / "triton"
    cold = run_program("gen_triton.py", "--small", TRITON_CACHE_DIR=root)
    assert (cold["jobs"], cold["hits"], cold["misses"]) == (9, 0, 9)
    return root


@pytest.fixture
def made_triton(triton_cache, tmp_path) -> Path:
    """Return a cache that was made at the path where it lies, for one test to move away."""
    here = tmp_path / "made"
    stage(TRITON, triton_cache, here)
    TRITON.fixups[0](here, here)
    return here


def test_a_moved_triton_cache_is_hit(made_triton, tmp_path):
    root = tmp_path / "elsewhere" / "cache"
    root.parent.mkdir()
    (report,) = move(TRITON, made_triton, root, fix=True)
    assert (report.rewritten, report.dropped) == (9, {})
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    warm = run_program("gen_triton.py", "--small", TRITON_CACHE_DIR=root)
    assert (warm["hits"], warm["misses"], warm["read_outside_dir"]) == (9, 0, 0)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_without_the_fixup_nothing_is_hit(made_triton, tmp_path):
    root = tmp_path / "elsewhere"
    move(TRITON, made_triton, root, fix=False)
    warm = run_program("gen_triton.py", "--small", TRITON_CACHE_DIR=root)
    assert (warm["hits"], warm["misses"]) == (0, 9)


def test_a_damaged_group_costs_its_own_kernel_only(made_triton, tmp_path):
    group = sorted(made_triton.glob("*/__grp__*.json"))[0]
    group.write_bytes(group.read_bytes()[:40])
    root = tmp_path / "elsewhere"
    (report,) = move(TRITON, made_triton, root, fix=True)
    assert (report.rewritten, list(report.dropped)) == (8, [group.parent.name])
    warm = run_program("gen_triton.py", "--small", TRITON_CACHE_DIR=root)
    assert (warm["hits"], warm["misses"]) == (8, 1)


def test_triton_inside_an_inductor_cache_is_hit(made_triton, tmp_path):
    cache = tmp_path / "inductor"
    (cache / "triton").mkdir(parents=True)
    made_triton.rename(cache / "triton" / "0")
    root = tmp_path / "elsewhere"
    report, of_vllm = move(INDUCTOR, cache, root, fix=True)
    assert of_vllm == FixupReport()
    assert (report.rewritten, report.dropped) == (9, {})
    warm = run_program("gen_triton.py", "--small", TRITON_CACHE_DIR=root / "triton" / "0")
    assert (warm["hits"], warm["misses"], warm["read_outside_dir"]) == (9, 0, 0)


def test_a_moved_inductor_cache_is_hit(tmp_path):
    variables = {
        "CHECK": 1,
        # 150 MB and 20 s, outside of the cache: see kinds/inductor.py.
        "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": 0,
        "TMPDIR": tmp_path,
    }
    source, root = tmp_path / "made", tmp_path / "elsewhere"
    cold = run_program("gen_inductor.py", "mini_infer", TORCHINDUCTOR_CACHE_DIR=source, **variables)
    assert (cold["fx_miss"], cold["aot_miss"], cold["fx_hit"]) == (1, 1, 0)
    assert cold["cpp_builds"] > 0
    assert (source / "locks").is_dir()

    move(INDUCTOR, source, root, fix=True)
    assert not (root / "locks").exists()
    warm = run_program("gen_inductor.py", "mini_infer", TORCHINDUCTOR_CACHE_DIR=root, **variables)
    assert (warm["fx_hit"], warm["aot_hit"]) == (1, 1)
    assert (warm["fx_miss"], warm["aot_miss"], warm["cpp_builds"]) == (0, 0, 0)
