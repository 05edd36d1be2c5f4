"""TileLang's cache where another user owns it: the directories that it wants to make are there."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from mx_artifacts.install.base import ArtifactOrigin, InstallReport, RootInstall
from mx_artifacts.install.state.already_installed import find_installed
from mx_artifacts.install.uninstall import uninstall_artifact
from mx_artifacts.install.usage import UsageVerdict, usage_of
from mx_artifacts.kinds.registry import get_kind
from mx_artifacts.node.mounts import keeps_access_times
from tests.support.install_cases import install_roots, make_bundle
from tests.support.kind_trees import TILE, shared_library

TILELANG = get_kind("tilelang")
STAGING = "0.1.15/linux-x86_64/.staging"
FILES = {
    f"{TILE}/executable.so": shared_library(),
    f"{TILE}/params.json": b"[]",
    "0.1.15/cuda-binaries/00/kernel.cubin": b"cubin",
}
ENTRIES = (STAGING, TILE, "0.1.15/cuda-binaries/00")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def install(root: Path) -> InstallReport:
    bundle = make_bundle(root.parent / "artifact.tar", FILES)
    part = RootInstall("", root, TILELANG.pack.entry_of, TILELANG.fixups)
    origin = ArtifactOrigin("ab" * 32, "source", "worker", "h:1", "tilelang")
    return install_roots([(part, bundle)], artifact=origin, lock_timeout_seconds=1.0)


def test_staging_directories_are_there_and_go_with_the_rest(root: Path) -> None:
    report = install(root)
    assert set(report.roots[0].installed) == set(ENTRIES)
    assert (root / STAGING).is_dir()
    assert not (root / "0.1.15/.staging").exists()
    assert find_installed({"": root}, "ab" * 32) is not None
    uninstall_artifact(report.receipt_path, lock_timeout_seconds=1.0)
    assert not root.exists()


def test_one_that_its_engine_made_stays(root: Path) -> None:
    (root / STAGING / "half").mkdir(parents=True)
    assert install(root).roots[0].kept == (STAGING,)
    assert (root / STAGING / "half").exists()


def test_it_is_none_of_the_entries_that_an_engine_reads(root: Path) -> None:
    (root / STAGING / "half").mkdir(parents=True)
    (root / STAGING / "half/executable.so").touch()
    if not keeps_access_times(root):
        pytest.skip("this file system keeps no access times")
    receipt = install(root).receipt_path
    time.sleep(0.02)  # more than the kernel's tick, by which files are stamped
    assert usage_of(receipt).verdict is UsageVerdict.UNUSED
    for path in FILES:
        os.utime(root / path, (time.time(), (root / path).stat().st_mtime))
    assert usage_of(receipt).verdict is UsageVerdict.HIT
