"""Directories in the bundle root: whose they are, and who removes them."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mx_artifacts.artifacts import workspace
from mx_artifacts.artifacts.workspace import make_workspace, remove_workspace, sweep
from mx_artifacts.errors import InstallError, NoSpaceError, UnusablePlaceError


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


def test_a_new_bundle_root_is_this_users_alone(tmp_path: Path) -> None:
    path = make_workspace(tmp_path / "a" / "new", "fetch", "triton")
    assert stat.S_IMODE((tmp_path / "a" / "new").stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    remove_workspace(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_bundle_root_of_another_user_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 4242, -1)
    with pytest.raises(UnusablePlaceError, match="belongs to user 4242"):
        make_workspace(tmp_path, "fetch", "triton")
    assert list(tmp_path.iterdir()) == []


def as_user(uid: int, work: Callable[[], object]) -> int:
    """Run `work` in a child process of that user; return its exit status."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_users_share_a_bundle_root_and_leave_each_others_alone() -> None:
    with tempfile.TemporaryDirectory() as directory:  # tmp_path is closed to others
        os.chmod(directory, 0o777)
        shared = Path(directory, "shared")
        shared.mkdir()
        shared.chmod(0o1777)  # as an administrator would, like /tmp
        assert as_user(4242, lambda: make_workspace(shared, "bundle", "triton")) == 0
        (dead,) = shared.iterdir()

        def work() -> None:
            path = make_workspace(shared, "fetch", "triton")
            (path / "artifact.tar").write_bytes(b"bytes")
            remove_workspace(path)

        assert as_user(4343, work) == 0
        assert list(shared.iterdir()) == [dead]
        assert as_user(4242, work) == 0
        assert list(shared.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_bundle_root_that_may_be_written_but_not_listed() -> None:
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o1733)
        assert as_user(4242, lambda: make_workspace(Path(directory), "fetch", "triton")) == 0


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
