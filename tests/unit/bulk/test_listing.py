"""Directories listed in one call: what os.listdir and os.lstat say of each."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from mx_artifacts.bulk.listing import Listing, list_directories
from mx_artifacts.bulk.status import Stamp
from tests.support.trees import write_tree

pytestmark = pytest.mark.usefixtures("each_bulk")


def found(listing: Listing) -> dict[str, Stamp]:
    return dict(zip(listing.names, listing.stamps, strict=True))


def list_at(root: Path, paths: Sequence[str]) -> list[Listing]:
    descriptor = os.open(root, os.O_PATH | os.O_DIRECTORY)
    try:
        return list_directories(descriptor, paths)
    finally:
        os.close(descriptor)


def expected(directory: Path) -> dict[str, Stamp]:
    return {path.name: Stamp.of(path.lstat()) for path in directory.iterdir()}


def test_names_and_stamps_are_those_of_the_system(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a": {"x": b"1", ".y": b"", "größe": b"2" * 9}, "b": {}, "c": {"d": {}}})
    (tmp_path / "a" / "link").symlink_to("nowhere")
    (tmp_path / "to b").symlink_to("a")
    os.mkfifo(tmp_path / "c" / "fifo")
    (tmp_path / "a" / os.fsdecode(b"not UTF-8 \xff")).touch()
    os.utime(tmp_path / "a" / "x", ns=(1, -1))
    paths = [".", "a", "b", "c", "c/d"]
    listings = list_at(tmp_path, paths)
    assert [listing.error for listing in listings] == [0] * len(paths)
    for path, listing in zip(paths, listings, strict=True):
        assert found(listing) == expected(tmp_path / path)


def test_a_directory_that_cannot_be_listed_has_an_error_and_the_others_are_listed(
    tmp_path: Path,
) -> None:
    write_tree(tmp_path, {"a": {"x": b"1"}, "file": b"", "z": {"y": {"deep": {}}}})
    (tmp_path / "link").symlink_to("z")
    (tmp_path / "z/y/link").symlink_to("deep")
    paths = ["a", "gone", "file", "z", "link", "link/y", "z/y/link", ".."]
    listings = list_at(tmp_path, paths)
    links = {errno.ENOTDIR, errno.ELOOP}
    wanted = [{0}, {errno.ENOENT}, {errno.ENOTDIR}, {0}, links, links, links]
    wanted += [{errno.EXDEV}]
    for path, listing, errors in zip(paths, listings, wanted, strict=True):
        assert listing.error in errors, path
        assert found(listing) == (expected(tmp_path / path) if 0 in errors else {}), path
    assert [each.error for each in list_directories(10_000, [".", "a"])] == [errno.EBADF] * 2
    assert list_at(tmp_path, []) == []


def test_directories_of_any_size_come_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mx_artifacts.bulk.listing._ROWS", 3)
    monkeypatch.setattr("mx_artifacts.bulk.listing._NAMES_BYTES", 40)
    sizes = [0, 1, 3, 4, 50, 0, 2, 2, 2]
    paths = [f"d{number}" for number in range(len(sizes))]
    for path, size in zip(paths, sizes, strict=True):
        write_tree(tmp_path / path, {f"{'n' * number}-": b"" for number in range(size)})
    listings = list_at(tmp_path, paths)
    assert [found(each) for each in listings] == [expected(tmp_path / path) for path in paths]


def test_a_time_that_is_too_large_for_a_column_is_listed(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a": {"x": b""}, "b": {"y": b""}})
    late_ns = 2**63 + 5
    try:
        os.utime(tmp_path / "a" / "x", ns=(0, late_ns))
    except OverflowError:
        pytest.skip("this Python sets no such time")
    if (tmp_path / "a" / "x").stat().st_mtime_ns != late_ns:
        pytest.skip("this file system keeps no such time")
    listings = list_at(tmp_path, ["a", "b"])
    assert [found(each) for each in listings] == [expected(tmp_path / path) for path in "ab"]
