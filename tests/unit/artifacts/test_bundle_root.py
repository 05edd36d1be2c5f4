"""The bundle root: whose it is, and who removes what is left in it."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from mx_artifacts.artifacts.bundle_root import (
    check_bundle_root,
    make_bundle_root,
    sweep,
    turn_file,
)
from mx_artifacts.errors import UnusablePlaceError


def test_only_files_without_a_lock_are_removed(tmp_path: Path) -> None:
    held, dead = turn_file(tmp_path, "a" * 64), turn_file(tmp_path, "b" * 64)
    theirs = tmp_path / "turn-notes.lock"
    for path in (held, dead, theirs):
        path.touch()
    with held.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        sweep(tmp_path)
        assert sorted(tmp_path.iterdir()) == sorted([held, theirs])
    sweep(tmp_path)
    assert list(tmp_path.iterdir()) == [theirs]


def test_a_new_bundle_root_is_this_users_alone(tmp_path: Path) -> None:
    make_bundle_root(tmp_path / "a" / "new")
    assert stat.S_IMODE((tmp_path / "a" / "new").stat().st_mode) == 0o700
    check_bundle_root(tmp_path / "a" / "new")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_bundle_root_of_another_user_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 4242, -1)
    with pytest.raises(UnusablePlaceError, match="belongs to user 4242") as caught:
        check_bundle_root(tmp_path)
    assert "--bundle-root" in caught.value.hint()


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


@pytest.mark.process
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_users_share_a_bundle_root_and_leave_each_others_alone() -> None:
    with tempfile.TemporaryDirectory() as directory:  # tmp_path is closed to others
        os.chmod(directory, 0o777)
        shared = Path(directory, "shared")
        shared.mkdir()
        shared.chmod(0o1777)  # as an administrator would, like /tmp
        dead = turn_file(shared, "a" * 64)
        assert as_user(4242, lambda: check_bundle_root(shared)) == 0
        assert as_user(4242, dead.touch) == 0
        assert as_user(4343, lambda: sweep(shared)) == 0
        assert list(shared.iterdir()) == [dead]
        assert as_user(4242, lambda: sweep(shared)) == 0
        assert list(shared.iterdir()) == []


@pytest.mark.process
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_bundle_root_that_may_be_written_but_not_listed() -> None:
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o1733)
        assert as_user(4242, lambda: sweep(Path(directory))) == 0
