"""A real Triton cache where the fix-up is missing, finds damage, or works inside of Inductor's.

"Moved" is what installing does without the network: copied, mtimes lost, the kind's fix-ups run
for the final root, renamed there, and the original deleted. That whole caches hit after a transfer
is tests/kinds.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from mx_artifacts.bundle.tree import scan_tree
from mx_artifacts.kinds.base import CacheKind, FixupReport
from mx_artifacts.kinds.registry import get_kind
from mx_artifacts.node.environment import environment
from tests.support.child import ended

PROGRAMS = Path(__file__).parent.parent / "support" / "caches"
TRITON, INDUCTOR = get_kind("triton"), get_kind("inductor")


def run_triton(root: Path) -> dict[str, Any]:
    """Compile or find a few kernels in a fresh process; return the JSON line that it prints."""
    env = {**environment(), "TRITON_CACHE_DIR": str(root)}
    command = [sys.executable, str(PROGRAMS / "gen_triton.py"), "--small"]
    done = ended(command, env=env)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
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
def triton_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("triton") is None:
        pytest.skip("triton is not installed")
    root = tmp_path_factory.mktemp("made") / "triton"
    cold = run_triton(root)
    assert (cold["jobs"], cold["hits"], cold["recompiled"]) == (9, 0, 9)
    return root


@pytest.fixture
def made_triton(triton_cache: Path, tmp_path: Path) -> Path:
    """Return a cache that was made at the path where it lies, for one test to move away."""
    here = tmp_path / "made"
    stage(TRITON, triton_cache, here)
    TRITON.fixups[0](here, here)
    return here


def test_without_the_fixup_nothing_is_hit(made_triton: Path, tmp_path: Path) -> None:
    root = tmp_path / "elsewhere"
    move(TRITON, made_triton, root, fix=False)
    warm = run_triton(root)
    assert (warm["hits"], warm["recompiled"]) == (0, 9)


def test_a_damaged_group_costs_its_own_kernel_only(made_triton: Path, tmp_path: Path) -> None:
    group = sorted(made_triton.glob("*/__grp__*.json"))[0]
    group.write_bytes(group.read_bytes()[:40])
    root = tmp_path / "elsewhere"
    (report,) = move(TRITON, made_triton, root, fix=True)
    assert (report.rewritten, list(report.dropped)) == (8, [group.parent.name])
    warm = run_triton(root)
    assert (warm["hits"], warm["recompiled"]) == (8, 1)


def test_triton_inside_an_inductor_cache_is_hit(made_triton: Path, tmp_path: Path) -> None:
    cache = tmp_path / "inductor"
    (cache / "triton").mkdir(parents=True)
    made_triton.rename(cache / "triton" / "0")
    root = tmp_path / "elsewhere"
    report, of_vllm = move(INDUCTOR, cache, root, fix=True)
    assert of_vllm == FixupReport()
    assert (report.rewritten, report.dropped) == (9, {})
    warm = run_triton(root / "triton" / "0")
    assert (warm["hits"], warm["recompiled"], warm["read_outside_dir"]) == (9, 0, 0)
