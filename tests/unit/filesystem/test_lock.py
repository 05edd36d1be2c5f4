"""Locks as their holders and their waiters see them; test_workspace.py has their use."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mx_artifacts.errors import InstallLockedError, UnsafePathError
from mx_artifacts.filesystem.beneath import Directory
from mx_artifacts.filesystem.lock import POLL_SECONDS, LockFile, locked
from mx_artifacts.filesystem.resolved_path import open_directory
from mx_artifacts.runtime.clock import FakeClock


class ActingClock(FakeClock):
    """Calls something when a waiter sleeps for the n-th time."""

    def __init__(self) -> None:
        super().__init__(0.0)
        self.sleeps: list[float] = []
        self.acts: dict[int, Callable[[], object]] = {}

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        super().sleep(seconds)
        self.acts.get(len(self.sleeps), lambda: None)()


@pytest.fixture(name="place")
def _place(tmp_path: Path) -> Iterator[Directory]:
    with open_directory(tmp_path) as directory:
        yield directory


def test_one_that_is_freed_in_time_is_got(place: Directory) -> None:
    file, clock = LockFile(place), ActingClock()
    holder = locked([file], 0.0, FakeClock())
    holder.__enter__()
    clock.acts[3] = lambda: holder.__exit__(None, None, None)
    with locked([file], 10.0, clock):
        assert clock.sleeps == [POLL_SECONDS] * 3
        assert f"{os.getpid()} on " in file.path.read_text()


def test_a_waiter_sleeps_no_longer_than_it_may(place: Directory) -> None:
    file, clock = LockFile(place), ActingClock()
    with (
        locked([file], 0.0, FakeClock()),
        pytest.raises(InstallLockedError, match=r"waited 0\.125 s"),
        locked([file], 0.125, clock),
    ):
        pass
    assert sum(clock.sleeps) == 0.125
    assert max(clock.sleeps) <= POLL_SECONDS


def test_one_time_limit_is_for_all_locks_together(place: Directory) -> None:
    first, second, clock = LockFile(place, "1"), LockFile(place, "2"), ActingClock()
    holders = [locked([each], 0.0, FakeClock()) for each in (first, second)]
    for holder in holders:
        holder.__enter__()
    clock.acts[10] = lambda: holders[0].__exit__(None, None, None)
    with (
        pytest.raises(InstallLockedError, match=f"{second.path} is held"),
        locked([first, second], 0.75, clock),
    ):
        pass
    assert sum(clock.sleeps) == pytest.approx(0.75)
    holders[1].__exit__(None, None, None)


@pytest.mark.parametrize("reverse", [False, True])
def test_locks_are_taken_in_one_order_however_they_are_named(
    place: Directory, reverse: bool
) -> None:
    """So two that want the same two cannot wait for each other."""
    files = sorted((LockFile(place, name) for name in "ab"), key=lambda f: f.name, reverse=reverse)
    with locked([LockFile(place, "a")], 0.0, FakeClock()):
        with pytest.raises(InstallLockedError, match="/a is held"), locked(files, 0.0, FakeClock()):
            pass
        assert not (place.path / "b").exists(), "the second was not even tried"


def test_a_lock_that_its_holder_removed_counts_for_nothing(place: Directory) -> None:
    file, clock = LockFile(place), ActingClock()
    holder = locked([file], 0.0, FakeClock())
    holder.__enter__()

    def remove_and_free() -> None:
        file.path.unlink()
        file.path.touch()  # as the next one makes it
        holder.__exit__(None, None, None)

    clock.acts[1] = remove_and_free
    with pytest.raises(FileNotFoundError), locked([file], 10.0, clock):
        pass


def test_a_holder_that_left_no_name_is_another_process(place: Directory) -> None:
    file = LockFile(place)
    with locked([file], 0.0, FakeClock()):
        file.path.write_bytes(b"")
        with (
            pytest.raises(InstallLockedError, match="held by another process"),
            locked([file], 0.0, FakeClock()),
        ):
            pass


def test_text_of_another_user_in_a_lock_file_cannot_forge_a_message(place: Directory) -> None:
    file = LockFile(place)
    with locked([file], 0.0, FakeClock()):
        file.path.write_bytes(b"1\x1b[2J\n\xff" + b"x" * 10_000)
        with pytest.raises(InstallLockedError) as caught, locked([file], 0.0, FakeClock()):
            pass
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("what", ["link", "directory", "pipe", "second name"])
def test_a_path_that_is_no_lock_file_is_neither_locked_nor_written(
    place: Directory, what: str
) -> None:
    file, precious = LockFile(place), place.path / "precious"
    precious.write_text("precious")
    if what == "link":
        file.path.symlink_to(precious)
    elif what == "directory":
        file.path.mkdir()
    elif what == "pipe":
        os.mkfifo(file.path)
    else:
        file.path.hardlink_to(precious)
    with (
        pytest.raises(UnsafePathError, match="not a lock file of mx-artifacts") as caught,
        locked([file], 5.0, FakeClock()),
    ):
        pass
    assert str(file.path) in caught.value.hint()
    assert precious.read_text() == "precious"


def test_an_error_in_the_block_frees_the_lock(place: Directory) -> None:
    file = LockFile(place)
    with pytest.raises(ZeroDivisionError), locked([file], 0.0, FakeClock()):
        raise ZeroDivisionError
    with locked([file], 0.0, FakeClock()):
        pass
