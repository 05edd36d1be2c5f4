"""What is done to the contents of many files at once: compared, read whole, replaced."""

from __future__ import annotations

import errno
import os
from array import array
from pathlib import Path

import pytest

from mx_artifacts.bulk.compare import first_damaged
from mx_artifacts.bulk.overwrite import overwrite_files
from mx_artifacts.bulk.read import contents_of
from mx_artifacts.core.digest import crc32c

pytestmark = pytest.mark.usefixtures("each_bulk")

TEXT = b"the parts of one buffer"
PARTS = ((0, 3), (3, 0), (4, 5), (0, len(TEXT)))
TIME_NS = 1_600_000_000_123_456_789


# --- compare --------------------------------------------------------------------------------------


def damaged(data: memoryview, parts: tuple[tuple[int, int], ...] = PARTS) -> int | None:
    """Return which of `parts` is found to differ from TEXT."""
    offsets, lengths = zip(*parts, strict=True)
    checksums = [crc32c(TEXT[max(0, offset) : offset + length]) for offset, length in parts]
    return first_damaged(data, array("q", offsets), array("q", lengths), array("q", checksums))


def test_good_parts_are_good() -> None:
    assert damaged(memoryview(bytearray(TEXT))) is None
    assert damaged(memoryview(TEXT)) is None  # which nobody may write to
    assert first_damaged(memoryview(b""), array("q"), array("q"), array("q")) is None


@pytest.mark.parametrize(("at", "part"), [(0, 0), (2, 0), (8, 2), (3, 3), (len(TEXT) - 1, 3)])
def test_the_number_of_the_first_damaged_part_is_returned(at: int, part: int) -> None:
    data = bytearray(TEXT)
    data[at] ^= 1
    assert damaged(memoryview(data)) == part
    assert damaged(memoryview(bytes(data))) == part


@pytest.mark.parametrize("outside", [(-1, 3), (0, -1), (20, 4), (24, 0), (1 << 62, 1 << 62)])
def test_a_part_outside_counts_as_damaged(outside: tuple[int, int]) -> None:
    assert damaged(memoryview(bytearray(TEXT)), (PARTS[0], outside)) == 1


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - zip's own, or ours
        first_damaged(memoryview(bytearray(TEXT)), array("q", [0]), array("q"), array("q", [0]))


# --- whole contents -------------------------------------------------------------------------------


def test_small_files_are_read_and_long_ones_are_not(tmp_path: Path) -> None:
    contents = {"a": b"1234", "b/c": b"", "b/d": b"12345", "e": os.urandom(4)}
    (tmp_path / "b").mkdir()
    for path, content in contents.items():
        (tmp_path / path).write_bytes(content)
    found = contents_of(str(tmp_path), list(contents), 4)
    assert found == [b"1234", b"", None, contents["e"]]
    assert contents_of(str(tmp_path), [], 4) == []


@pytest.mark.parametrize("path", ["none", "link"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, path: str) -> None:
    (tmp_path / "a").write_bytes(b"1234")
    (tmp_path / "link").symlink_to("a")
    with pytest.raises(OSError, match=path) as caught:
        contents_of(str(tmp_path), ["a", path], 100)
    assert caught.value.errno in (errno.ENOENT, errno.ELOOP)


# --- overwriting ----------------------------------------------------------------------------------


@pytest.fixture(name="files")
def _files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / name for name in ("a", "b/c", "b/d")]
    (tmp_path / "b").mkdir()
    for path, mode in zip(paths, (0o644, 0o444, 0o755), strict=True):
        path.write_bytes(b"as it was")
        path.chmod(mode)
        os.utime(path, ns=(TIME_NS, TIME_NS))
    return paths


def test_only_the_contents_change(tmp_path: Path, files: list[Path]) -> None:
    before = [path.stat() for path in files]
    overwrite_files(str(tmp_path), {"a": b"short", "b/c": b"", "b/d": b"longer than it was"})
    assert [path.read_bytes() for path in files] == [b"short", b"", b"longer than it was"]
    after = [path.stat() for path in files]
    for old, new in zip(before, after, strict=True):
        assert (new.st_mode, new.st_ino, new.st_mtime_ns) == (old.st_mode, old.st_ino, TIME_NS)
    overwrite_files(str(tmp_path), {})


@pytest.mark.parametrize("obstacle", ["none", "link"])
def test_those_before_an_obstacle_are_written(
    tmp_path: Path, files: list[Path], obstacle: str
) -> None:
    (tmp_path / "link").symlink_to("b/d")
    with pytest.raises(OSError, match=obstacle):
        overwrite_files(str(tmp_path), {"a": b"new", obstacle: b"new", "b/d": b"new"})
    assert [path.read_bytes() for path in files] == [b"new", b"as it was", b"as it was"]
