"""A compiler rewrites Triton groups while they are packed: no group is ever of two generations."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from pathlib import Path

import pytest

from mx_artifacts.bundle import pack
from mx_artifacts.bundle.packed import PackReport
from mx_artifacts.kinds.registry import get_kind
from tests.support.packing import pack_to_file, unpack_file
from tests.support.triton_writer import (
    BUSY,
    CALM,
    GROUP,
    NASTY_ORDER,
    generation_of,
    generations_in,
    key,
    rewriting,
    rewriting_process,
    write_group,
    write_groups,
)

TRITON = get_kind("triton")
DEADLINE_SECONDS = 120.0
"""Generous: how soon the writer gets its turn beside the packer is the machine's business."""


@pytest.fixture(name="root")
def _root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(pack, "MIN_AGE_SECONDS", 0.05)  # above the clock's tick; less than a pause
    monkeypatch.setattr(pack, "_PATIENCE_SECONDS", 0.2)  # many packs; what is busy is left out
    return write_groups(tmp_path / "root")


def check(bundle: Path, report: PackReport) -> list[set[int]]:
    """Check that each packed group is whole; return the generations of each one's files."""
    out = bundle.with_suffix(".out")
    unpack_file(bundle, out)
    generations = generations_in(out)
    shutil.rmtree(out)
    left_out = {skip.path for skip in report.skipped if "/" not in skip.path}
    assert len(generations) + len(left_out) == BUSY + CALM
    assert {key(number) for number in range(BUSY, BUSY + CALM)} <= set(report.paths)
    return list(generations.values())


def pack_often(root: Path, times: int, written: int = 0) -> list[set[int]]:
    """Pack so often, and until the writer has reached the generation `written`."""
    bundle = root.parent / "b.tar"
    found: list[set[int]] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while times > 0 or newest(root) < written:
        assert time.monotonic() < deadline, f"generation {newest(root)} after {len(found)} groups"
        found += check(bundle, pack_to_file(root, bundle, TRITON.pack))
        times -= 1
    return found


def newest(root: Path) -> int:
    """Return the newest generation that is whole; writing a group file is its last step."""
    found = []
    for number in range(BUSY):
        with suppress(OSError, ValueError):  # it is being written
            found.append(generation_of(GROUP, (root / key(number) / GROUP).read_bytes()))
    return max(found, default=0)


def test_groups_rewritten_by_a_thread(root: Path) -> None:
    with rewriting(root):
        found = pack_often(root, 50, written=50)
    assert [each for each in found if len(each) > 1] == []


def test_groups_that_are_committed_before_their_files_are_written(root: Path) -> None:
    """Only the packer's distrust of fresh files helps, so the writer must not be held up."""
    with rewriting(root, NASTY_ORDER) as returned:
        found = pack_often(root, 10, written=10)
    _, slow = returned[0]
    assert [each for each in found if len(each) > 1 and not each & slow] == []


def test_groups_rewritten_by_another_process(root: Path) -> None:
    with rewriting_process(root):
        found = pack_often(root, 10)
    assert [each for each in found if len(each) > 1] == []


def test_a_compiler_that_stays_in_the_middle_of_a_group(root: Path) -> None:
    """The group is complete and nothing changes, but its files are of two generations."""
    write_group(root, 0, 1, order=("k.ttir", "k.cubin"))
    bundle = root.parent / "b.tar"
    report = pack_to_file(root, bundle, TRITON.pack)
    reasons = {skip.path: skip.reason for skip in report.skipped}
    assert reasons == {key(0): f"k.ttir is newer than {GROUP}: it is being compiled again"}
    assert check(bundle, report) == [{0}] * 3
