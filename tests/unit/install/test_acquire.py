"""Workspaces in which nothing is recorded go away, whoever else comes for them meanwhile."""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from mx_artifacts.bundle.rules import first_parts
from mx_artifacts.errors import BundleError, InstallLockedError, NoSpaceError
from mx_artifacts.filesystem.lock import LockFile, locked
from mx_artifacts.filesystem.resolved_path import open_directory
from mx_artifacts.install.base import RootInstall
from mx_artifacts.install.staging import staging
from mx_artifacts.install.workspace import acquire
from mx_artifacts.install.workspace.acquire import acquire_staging, locked_workspaces
from mx_artifacts.runtime.clock import SYSTEM_CLOCK, FakeClock
from tests.support.install_cases import (
    NEW,
    ORIGIN,
    fill,
    install,
    install_roots,
    make_bundle,
)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "artifact.tar", NEW)


def raising(error: BaseException) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize("error", [NoSpaceError("full"), KeyboardInterrupt()])
@pytest.mark.parametrize("inside", [False, True])
def test_nothing_is_left_of_an_install_that_failed(
    tmp_path: Path,
    bundle: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    inside: bool,
) -> None:
    root = tmp_path / ("x" * 250 if inside else "root")
    if inside:
        fill(root, {"mine": b"1"})
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(staging, "require_space", raising(error))
    with pytest.raises(type(error)):
        install(root, bundle)
    assert sorted(tmp_path.rglob("*")) == before


def test_records_of_an_earlier_install_stay(tmp_path: Path, bundle: Path) -> None:
    install(tmp_path / "root", bundle)
    before = sorted(tmp_path.rglob("*"))
    (tmp_path / "bad.tar").write_bytes(b"no tar")
    with pytest.raises(BundleError):
        install(tmp_path / "root", tmp_path / "bad.tar", replace=True)
    assert sorted(tmp_path.rglob("*")) == sorted([*before, tmp_path / "bad.tar"])


def test_a_lock_that_is_not_got(tmp_path: Path, bundle: Path) -> None:
    """The held workspace is left to its holder; that of the other root is nobody's."""
    first, second = tmp_path / "1", tmp_path / "2"
    with locked_workspaces([second], 1.0, SYSTEM_CLOCK) as (held,):
        with pytest.raises(InstallLockedError):
            install_roots(
                [
                    (RootInstall(str(n), r, first_parts(1)), bundle)
                    for n, r in enumerate((first, second))
                ],
                artifact=ORIGIN,
                lock_timeout_seconds=0.0,
                clock=FakeClock(),
            )
        assert sorted(os.listdir(held.directory)) == ["lock", "old", "receipts", "staging"]
        assert sorted(os.listdir(tmp_path)) == [".mx-artifacts.2", "artifact.tar"]


class WhileWaiting(FakeClock):
    """Calls `action` the first time that somebody waits."""

    def __init__(self, action: Callable[[], object]) -> None:
        super().__init__()
        self._action: Callable[[], object] | None = action

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        action, self._action = self._action, None
        if action is not None:
            action()


def test_waiting_for_a_lock_that_is_removed_starts_again(tmp_path: Path) -> None:
    root = tmp_path / "root"
    failing = ExitStack()
    (held,) = failing.enter_context(locked_workspaces([root], 1.0, SYSTEM_CLOCK))

    def fail() -> None:
        with suppress(KeyboardInterrupt), failing:
            raise KeyboardInterrupt
        assert not held.directory.exists()

    with locked_workspaces([root], 1.0, WhileWaiting(fail)) as (again,):
        assert again.directory == held.directory
        assert again.lock.exists()
        assert again.staging.exists()


def test_a_workspace_that_was_removed_after_it_was_found_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by a holder that was killed between two of its removals."""
    root, removals = tmp_path / "root", iter(("all", "staging", "", ""))
    take = locked

    def remove_some_and_lock(files: list[LockFile], *rest: Any) -> AbstractContextManager[None]:
        which = next(removals)
        if which == "all":
            shutil.rmtree(files[0].directory.path)
        elif which:
            files[0].path.with_name(which).rmdir()
        return take(files, *rest)

    monkeypatch.setattr(acquire, "locked", remove_some_and_lock)
    with locked_workspaces([root], 1.0, SYSTEM_CLOCK) as (again,):
        assert next(removals, None) == ""
        assert again.lock.exists()
        assert again.staging.exists()


def test_a_staging_place_that_is_removed_while_it_is_made_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    take = fcntl.flock

    def remove_once_and_lock(descriptor: int, operation: int) -> None:
        if not made:
            made.append(os.readlink(f"/proc/self/fd/{descriptor}"))
            shutil.rmtree(tmp_path / ".mx-artifacts.root")
        take(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", remove_once_and_lock)
    workspace, place = acquire_staging(tmp_path / "root", resume=False)
    assert place.tree.is_dir()
    assert str(place.held.path) not in made
    workspace.sweep()  # as another installer does
    assert place.tree.is_dir()
    place.held.close()
    workspace.sweep()
    assert not place.held.path.exists()
    workspace.close()


def test_a_lock_file_that_was_replaced_does_not_count(tmp_path: Path) -> None:
    path, other = tmp_path / "lock", tmp_path / "other"

    def replace() -> None:
        other.touch()
        other.rename(path)
        waiting.close()

    waiting = ExitStack()
    with open_directory(tmp_path) as directory:
        file = LockFile(directory)
        waiting.enter_context(locked([file], 1.0, SYSTEM_CLOCK))
        with pytest.raises(FileNotFoundError), locked([file], 1.0, WhileWaiting(replace)):
            pass


def test_many_that_fail_and_succeed_at_once_exclude_each_other(tmp_path: Path) -> None:
    root, inside = tmp_path / "root", threading.Lock()

    def work(number: int) -> None:
        with suppress(KeyboardInterrupt), locked_workspaces([root], 60.0, SYSTEM_CLOCK) as (held,):
            assert inside.acquire(blocking=False)
            try:
                assert sorted(os.listdir(held.directory)) == ["lock", "old", "receipts", "staging"]
                if number % 2:
                    raise KeyboardInterrupt
            finally:
                inside.release()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(24)))
