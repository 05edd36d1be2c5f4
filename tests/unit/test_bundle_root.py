"""Directories in the bundle root: whose they are, and who removes them."""

from __future__ import annotations

import fcntl
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mx_artifacts.artifacts import workspace
from mx_artifacts.artifacts.workspace import make_workspace, remove_workspace, sweep
from mx_artifacts.errors import InstallError, NoSpaceError


def abandoned(bundle_root: Path, name: str = "bundle-triton-0abc_def") -> Path:
    path = bundle_root / name
    (path / "deep").mkdir(parents=True)
    (path / "deep" / "artifact.tar").write_bytes(b"bytes")
    return path


def test_the_next_one_removes_what_nobody_holds_and_nothing_else(tmp_path: Path) -> None:
    held = make_workspace(tmp_path, "bundle", "triton")
    dead = abandoned(tmp_path)
    theirs = abandoned(tmp_path, "bundle-notes"), abandoned(tmp_path, "vllm-abcdefgh")
    (tmp_path / "fetch-file-abcdefgh").touch()
    (tmp_path / "fetch-link-abcdefgh").symlink_to(theirs[0])
    mine = make_workspace(tmp_path, "fetch", "triton")
    assert not dead.exists()
    assert held.is_dir()
    assert mine.is_dir()
    assert all((path / "deep" / "artifact.tar").exists() for path in theirs)
    assert (tmp_path / "fetch-file-abcdefgh").exists()
    assert (tmp_path / "fetch-link-abcdefgh").is_symlink()
    for path in (held, mine, mine):
        remove_workspace(path)
        assert not path.exists()


def test_a_sweep_that_meets_a_new_directory_before_it_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is removed, or locked, or about to be removed; in each case another one is made."""
    make, lost, locks = workspace.tempfile.mkdtemp, [], []

    def meddle(**options: object) -> str:
        path = make(**options)  # type: ignore[call-overload]
        if len(lost) < 2:
            lost.append(path)
            if len(lost) == 1:
                shutil.rmtree(path)
            else:
                locks.append(os.open(path, os.O_RDONLY))
                fcntl.flock(locks[-1], fcntl.LOCK_EX)
        return str(path)

    monkeypatch.setattr(workspace.tempfile, "mkdtemp", meddle)
    path = make_workspace(tmp_path, "fetch", "triton")
    assert str(path) not in lost
    for descriptor in locks:
        os.close(descriptor)
    sweep(tmp_path)
    assert list(tmp_path.iterdir()) == [path]
    remove_workspace(path)


def test_many_at_once_do_not_remove_each_others(tmp_path: Path) -> None:
    def work(number: int) -> bool:
        path = make_workspace(tmp_path, "fetch", "triton")
        (path / "artifact.tar").write_bytes(b"bytes")
        sweep(tmp_path)
        there = (path / "artifact.tar").exists()
        remove_workspace(path)
        return there

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(work, range(64)))
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is swept there, for nobody can tell whose it is."""

    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(workspace.fcntl, "flock", refuse)
    dead = abandoned(tmp_path)
    path = make_workspace(tmp_path, "fetch", "triton")
    assert dead.exists()
    remove_workspace(path)


@pytest.mark.parametrize(
    ("number", "kind"), [(28, NoSpaceError), (122, NoSpaceError), (13, InstallError)]
)
def test_a_bundle_root_that_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[InstallError]
) -> None:
    def refuse(**_options: object) -> str:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(workspace.tempfile, "mkdtemp", refuse)
    with pytest.raises(InstallError, match=str(tmp_path)) as caught:
        make_workspace(tmp_path, "fetch", "triton")
    assert type(caught.value) is kind
    assert "--bundle-root" in caught.value.hint()
