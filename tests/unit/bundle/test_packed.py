"""Packing a cache again, with what an earlier pack of it can spare."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mx_artifacts.bulk.read import read_files
from mx_artifacts.bundle.entry import EntryView
from mx_artifacts.bundle.pack import pack_tree
from mx_artifacts.bundle.packed import PackedTree
from mx_artifacts.bundle.rules import PackRules, first_parts
from mx_artifacts.memory.buffers import Buffer, Bundle, FileBuffer
from tests.support.packing import SETTLED
from tests.support.trees import write_tree

pytestmark = pytest.mark.usefixtures("each_bulk")

RULES = PackRules(entry_of=first_parts(1))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three entries of a few files, one of them large."""
    large = os.urandom((1 << 20) + 77)
    return write_tree(
        tmp_path / "root",
        {"a": {"x": b"1", "sub": {"y": b"22", "none": b""}}, "b": {"x": large}, "c": b"333"},
    )


@pytest.fixture
def files_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the files that packing reads."""
    paths: list[str] = []

    def spy(root: int, sources: Sequence[str], *rest: Any) -> Sequence[int]:
        paths.extend(sources)
        return read_files(root, sources, *rest)

    monkeypatch.setattr("mx_artifacts.bundle.read_entry.read_files", spy)
    return paths


def pack(
    root: Path,
    previous: PackedTree[Bundle] | None = None,
    *,
    rules: PackRules = RULES,
    allocate: Callable[[int], Bundle] = Buffer,
) -> PackedTree[Bundle]:
    return pack_tree(root, rules, allocate, previous=previous, clock=SETTLED)


def assert_same(again: PackedTree[Bundle], fresh: PackedTree[Bundle]) -> None:
    assert bytes(again.memory.view) == bytes(fresh.memory.view)
    for each in ("members", "report", "root", "rules", "entries"):
        assert getattr(again, each) == getattr(fresh, each), each


def write_over(path: Path) -> None:
    """Change a file's content in place, and nothing that its owner can set back."""
    status = path.stat()
    path.write_bytes(b"9" * status.st_size)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def touch_mode(path: Path) -> None:
    path.chmod(0o755)
    path.chmod(0o644)


CHANGES: dict[str, tuple[Callable[[Path], object], set[str]]] = {
    "nothing": (lambda root: None, set()),
    "a content": (lambda root: write_over(root / "c"), {"c"}),
    "a size": (lambda root: (root / "a" / "x").write_bytes(b"longer"), {"a"}),
    "a stamp": (lambda root: touch_mode(root / "a" / "sub" / "y"), {"a"}),
    "one more file": (lambda root: (root / "b" / "z").write_bytes(b""), {"b"}),
    "one file less": (lambda root: (root / "a" / "x").unlink(), {"a"}),
    "one entry more": (lambda root: (root / "aa").write_bytes(b"new"), {"aa"}),
    "one entry less": (lambda root: shutil.rmtree(root / "a"), set()),
    "a copy and another name": (
        lambda root: [shutil.copytree(root / "a", root / "d"), (root / "c").rename(root / "0")],
        {"d", "0"},
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("memory", ["memory", "file"])
def test_only_what_changed_is_read_and_the_result_is_that_of_a_fresh_pack(
    root: Path, tmp_path: Path, files_read: list[str], change: str, memory: str
) -> None:
    made = contextlib.ExitStack()

    def allocate(length: int) -> Bundle:
        file = memory == "file"
        bundle = FileBuffer(tmp_path / "bundles", length) if file else Buffer(length)
        made.callback(bundle.close)
        return bundle

    first = pack(root, allocate=allocate)
    content = bytes(first.memory.view)
    do, entries = CHANGES[change]
    do(root)
    files_read.clear()
    again = pack(root, first, allocate=allocate)
    assert {path.partition("/")[0] for path in files_read} == entries
    assert bytes(first.memory.view) == content
    first.memory.close()
    assert_same(again, pack(root))
    files_read.clear()
    assert_same(pack(root, again, allocate=allocate), again)
    assert not files_read
    made.close()


def test_an_entry_that_was_left_out_is_looked_at_again(root: Path, files_read: list[str]) -> None:
    fits: set[str] = {"b", "c"}

    def fault_of(entry: EntryView) -> str | None:
        return None if entry.path in fits else "not yet"

    rules = replace(RULES, fault_of=fault_of)
    first = pack(root, rules=rules)
    fits.add("a")
    files_read.clear()
    again = pack(root, first, rules=rules)
    assert {path.partition("/")[0] for path in files_read} == {"a"}
    assert_same(again, pack(root, rules=rules))


def test_another_root_and_other_rules_spare_nothing(
    root: Path, tmp_path: Path, files_read: list[str]
) -> None:
    first = pack(root)
    count = len(files_read)
    other = tmp_path / "other" / "root"
    shutil.copytree(root, other)
    kept_times = replace(RULES, keep_mtimes=True)
    for again, fresh in (
        (pack(other, first), pack(other)),
        (pack(root, first, rules=kept_times), pack(root, rules=kept_times)),
    ):
        assert_same(again, fresh)
    assert len(files_read) == 5 * count
