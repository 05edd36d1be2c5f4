"""Files of others are read whole, or not at all; nothing in a file's place is waited for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mx_artifacts.filesystem.regular_file import (
    have_same_content,
    mapped_regular_file,
    read_regular_file,
)


def test_a_file_is_read_to_its_bound(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    assert read_regular_file(file, 5) == b"12345"
    with pytest.raises(OSError, match="longer than 4 bytes"):
        read_regular_file(file, 4)
    file.write_bytes(b"")
    assert read_regular_file(file, 0) == b""


@pytest.mark.parametrize("content", [b"12345", b""])
def test_a_file_is_mapped_as_it_is(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    assert mapped_regular_file(file) == content


def test_a_file_that_says_nothing_of_its_size() -> None:
    with pytest.raises(OSError, match="longer than 8 bytes"):
        read_regular_file("/proc/self/status", 8)


@pytest.mark.parametrize("kind", ["fifo", "link", "device", "directory", "nothing"])
def test_a_path_that_is_no_regular_file_is_refused(tmp_path: Path, kind: str) -> None:
    path, good = tmp_path / "path", tmp_path / "good"
    good.write_bytes(b"12345")
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(good)
    elif kind == "device":
        path = Path("/dev/zero")
    elif kind == "directory":
        path.mkdir()
    with pytest.raises(OSError, match=r".") as caught:
        read_regular_file(path, 100)
    assert caught.value.filename == str(path)
    with pytest.raises(OSError, match=r"."):
        mapped_regular_file(path)
    assert not have_same_content(good, path)
    assert not have_same_content(path, good)


def test_contents_are_compared(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(b"a" * 3_000_000)
    other.write_bytes(b"a" * 3_000_000)
    assert have_same_content(one, other)
    other.write_bytes(b"a" * 2_999_999 + b"b")
    assert not have_same_content(one, other)
    other.write_bytes(b"a" * 2_999_999)
    assert not have_same_content(one, other)
