"""Renames that overwrite nothing, and swaps: with the kernel's call, and where there is none."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mx_artifacts.filesystem import rename
from mx_artifacts.filesystem.rename import exchange, rename_new


def _refuse(*_arguments: object) -> int:
    ctypes.set_errno(errno.EINVAL)  # as NFS does
    return -1


@pytest.fixture(params=["call", "no call", "file system refuses"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "no call":
        monkeypatch.setattr(rename, "_renameat2", None)
    if request.param == "file system refuses":
        monkeypatch.setattr(rename, "_renameat2", _refuse)
    return str(request.param)


class Two:
    """Two directories, open: `here` with what is renamed, `there` where it goes."""

    def __init__(self, above: Path) -> None:
        self.here, self.there = above / "here", above / "there"
        for path in (self.here, self.there):
            path.mkdir()
        self.here_fd = os.open(self.here, os.O_RDONLY)
        self.there_fd = os.open(self.there, os.O_RDONLY)
        (self.here / "new").mkdir()
        (self.here / "new" / "file").write_text("new")

    def rename(self) -> None:
        rename_new(self.here_fd, "new", self.there_fd, "name")

    def exchange(self) -> bool:
        return exchange(self.here_fd, "new", self.there_fd, "name")

    def close(self) -> None:
        os.close(self.here_fd)
        os.close(self.there_fd)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    two = Two(tmp_path)
    yield two
    two.close()


@pytest.mark.usefixtures("way")
def test_a_new_file_gets_its_name(two: Two) -> None:
    two.rename()
    assert (two.there / "name" / "file").read_text() == "new"
    assert os.listdir(two.here) == []


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("what", ["file", "directory", "empty directory", "broken link"])
def test_no_existing_file_is_overwritten(two: Two, what: str) -> None:
    name = two.there / "name"
    if what == "file":
        name.write_text("old")
    elif what == "broken link":
        name.symlink_to("nowhere")
    else:
        name.mkdir()
        if what == "directory":
            (name / "file").write_text("old")
    before = name.lstat()
    with pytest.raises(FileExistsError):
        two.rename()
    assert name.lstat().st_ino == before.st_ino
    assert (two.here / "new" / "file").read_text() == "new"


@pytest.mark.usefixtures("way")
def test_a_missing_file_cannot_be_renamed(two: Two) -> None:
    with pytest.raises(FileNotFoundError):
        rename_new(two.here_fd, "other", two.there_fd, "name")


def test_a_swap_is_one_step_or_none(two: Two, way: str) -> None:
    (two.there / "name").mkdir()
    (two.there / "name" / "file").write_text("old")
    assert two.exchange() is (way == "call")
    here, there = ("old", "new") if way == "call" else ("new", "old")
    assert (two.here / "new" / "file").read_text() == here
    assert (two.there / "name" / "file").read_text() == there


def test_a_swap_needs_both(two: Two) -> None:
    with pytest.raises(FileNotFoundError):
        two.exchange()
    assert (two.here / "new" / "file").read_text() == "new"


def test_names_that_are_not_utf8_are_renamed_too(two: Two, way: str) -> None:
    name = os.fsdecode(b"k\xff")
    rename_new(two.here_fd, "new", two.there_fd, name)
    assert os.listdir(two.there) == [name]
