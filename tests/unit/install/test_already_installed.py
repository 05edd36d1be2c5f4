"""Whether an artifact is here already, as it was installed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mx_artifacts.bundle.rules import first_parts
from mx_artifacts.install.base import ArtifactOrigin, RootInstall
from mx_artifacts.install.state.already_installed import find_installed
from mx_artifacts.kinds.base import FixupReport
from tests.support.install_cases import (
    NEW,
    OLD,
    ORIGIN,
    fill,
    install,
    install_roots,
    make_bundle,
    workspace_of,
)

ID = ORIGIN.artifact_id


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "artifact.tar", NEW)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def test_it_is_what_another_install_would_report(root: Path, bundle: Path) -> None:
    assert find_installed({"": root}, ID) is None
    fill(root, {**OLD, "k3": b"kept"})
    install(root, bundle)
    found = find_installed({"": root}, ID)
    assert found == install(root, bundle)
    assert found is not None
    assert found.unchanged
    assert found.roots[0].kept == ("k1", "k2", "k3")
    assert find_installed({"": root}, "cd" * 32) is None
    assert find_installed({"other": root}, ID) is None
    assert find_installed({"": root.with_name("moved")}, ID) is None


def test_a_hit_of_its_engine_leaves_it_here(root: Path, tmp_path: Path) -> None:
    """DeepJIT moves a time on each hit, and nothing is fetched again for that."""
    origin = ArtifactOrigin(ID, "source-1", "worker-1", "h:1", "deep_gemm")
    files = {"cache/gemm.00/.committed": b"", "cache/gemm.00/kernel.cubin": b"code"}
    install(root, make_bundle(tmp_path / "b.tar", files), artifact=origin)
    os.utime(root / "cache/gemm.00/.committed")
    assert find_installed({"": root}, ID) is not None
    os.utime(root / "cache/gemm.00/kernel.cubin")
    assert find_installed({"": root}, ID) is None


def test_another_artifact_of_later_leaves_it_here(root: Path, bundle: Path, tmp_path: Path) -> None:
    install(root, bundle)
    later = ArtifactOrigin("cd" * 32, "source-1", "worker-1", "h:1", "triton")
    install(root, make_bundle(tmp_path / "b.tar", {"k9/kernel.so": b"9"}), artifact=later)
    assert find_installed({"": root}, ID) is not None


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda root: (root / "k1/kernel.so").unlink(), id="a file is gone"),
        pytest.param(
            lambda root: (root / "k1/kernel.so").write_bytes(b"longer than it"), id="size"
        ),
        pytest.param(lambda root: os.utime(root / "k1/kernel.so"), id="mtime"),
        pytest.param(lambda root: (root / "k1").rename(root / "k0"), id="an entry is gone"),
        pytest.param(lambda root: root.rename(root.with_name("x")), id="the root is gone"),
        pytest.param(lambda root: (root / "kept").unlink(), id="a kept entry is gone"),
        pytest.param(
            lambda root: (workspace_of(root) / "journal.json").touch(), id="an installer died"
        ),
        pytest.param(
            lambda root: next(workspace_of(root).glob("receipts/*")).write_text("{"),
            id="the receipt is damaged",
        ),
    ],
)
def test_an_install_that_changed_is_not_reported_as_installed(
    root: Path, tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    fill(root, {"kept": b"1"})
    install(root, make_bundle(tmp_path / "b.tar", {**NEW, "kept": b"2"}))
    assert find_installed({"": root}, ID) is not None
    spoil(root)
    assert find_installed({"": root}, ID) is None


def test_an_entry_that_was_dropped_is_fetched_again(root: Path, bundle: Path) -> None:
    def drop_k2(staged: Path, root: Path) -> FixupReport:
        (staged / "k2/kernel.json").unlink()
        (staged / "k2/deep/kernel.so").unlink()
        (staged / "k2/deep").rmdir()
        (staged / "k2").rmdir()
        return FixupReport(dropped={"k2": "no compiler"})

    install_roots(
        [(RootInstall("", root, first_parts(1), (drop_k2,)), bundle)],
        artifact=ORIGIN,
        lock_timeout_seconds=1.0,
    )
    assert find_installed({"": root}, ID) is None
