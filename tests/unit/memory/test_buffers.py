"""Memory that bundles are packed into: budgets, unnamed files, and how they end."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mx_artifacts.errors import ConfigurationError, NoSpaceError
from mx_artifacts.memory.budget import BundleBudget
from mx_artifacts.memory.buffers import Buffer, Bundle, FileBuffer

PAGE = os.sysconf("SC_PAGESIZE")


@pytest.fixture(params=["memory", "file"])
def bundle(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bundle]:
    made = Buffer(3 * PAGE) if request.param == "memory" else FileBuffer(tmp_path, 3 * PAGE)
    yield made
    made.close()


def test_bytes_stay_through_writing_and_cutting(bundle: Bundle) -> None:
    assert bytes(bundle.view) == bytes(3 * PAGE)
    content = os.urandom(2 * PAGE + 5)
    bundle.view[: len(content)] = content
    bundle.written(7, len(content) - 7)
    bundle.cut(len(content))
    assert bundle.length == len(content)
    assert bundle.view == content
    bundle.close()
    bundle.close()


def test_memory_outlives_its_owner_while_a_reader_uses_it(bundle: Bundle) -> None:
    part = bundle.view[:4]
    part[:] = b"read"
    bundle.close()
    assert bytes(part) == b"read"


@pytest.mark.parametrize("seconds", [0.0001, 0.002])
def test_large_memory_takes_huge_pages_while_they_come_quickly(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    asked: list[float] = []

    def clock() -> float:
        asked.append(len(asked) * seconds)
        return asked[-1]

    monkeypatch.setattr("mx_artifacts.memory.buffers.time.thread_time", clock)
    length = (32 << 20) + 5
    buffer = Buffer(length)
    assert len(asked) == 2 * (17 if seconds < 0.001 else 1)
    assert buffer.view[-5:] == bytes(5)
    buffer.view[:] = content = os.urandom(1 << 20) * 32 + b"12345"
    assert buffer.view == content
    buffer.close()


@pytest.mark.parametrize("length", [0, -1])
def test_no_bytes_are_no_buffer(tmp_path: Path, length: int) -> None:
    with pytest.raises(ValueError, match="makes no sense"):
        Buffer(length)
    with pytest.raises(ValueError, match="makes no sense"):
        FileBuffer(tmp_path, length)


def test_a_file_has_no_name_and_takes_its_space_at_once(tmp_path: Path) -> None:
    directory = tmp_path / "deep" / "root"
    buffer = FileBuffer(directory, 100 * PAGE)
    assert os.listdir(directory) == []
    buffer.view[PAGE : PAGE + 3] = b"abc"
    target = bytearray(5)
    buffer.read_into(PAGE - 1, memoryview(target))
    assert target == b"\0abc\0"
    with pytest.raises(OSError, match="shorter"):
        buffer.read_into(100 * PAGE - 1, memoryview(target))
    buffer.close()


@pytest.mark.parametrize("by", ["its statistics", "the attempt"])
def test_a_file_system_without_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    free = os.statvfs(tmp_path)
    monkeypatch.setattr(os, "posix_fallocate", full)
    length = free.f_blocks * free.f_frsize * 2 if by == "its statistics" else 10
    with pytest.raises(NoSpaceError) as caught:
        FileBuffer(tmp_path, length)
    assert "--bundle-root" in caught.value.hint()
    assert os.listdir(tmp_path) == []


def test_a_directory_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigurationError, match="Not a directory") as caught:
        FileBuffer(tmp_path / "file" / "x", 1)
    assert "--bundle-root" in caught.value.hint()


def test_bundles_beyond_the_budget_are_in_files(tmp_path: Path) -> None:
    budget = BundleBudget(10, tmp_path)
    first, second, third = budget.allocate(6), budget.allocate(5), budget.allocate(4)
    assert [type(each) is FileBuffer for each in (first, second, third)] == [False, True, False]
    first.close()
    first.close()  # gives back once
    fourth, fifth = budget.allocate(6), budget.allocate(1)
    assert [type(each) is FileBuffer for each in (fourth, fifth)] == [False, True]
    for each in (second, third, fourth, fifth):
        each.close()
