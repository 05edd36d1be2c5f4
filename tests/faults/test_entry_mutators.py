"""Compilers of every kind write while their cache is packed: an entry arrives whole or not at all.

Triton's is in test_triton_mutator.py.
"""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path

import pytest

from mx_artifacts.bundle import pack
from mx_artifacts.kinds.registry import get_kind
from tests.support.entry_writers import (
    COMPILERS,
    Compiler,
    Files,
    compiling,
    generation_of,
)
from tests.support.packing import pack_to_file, unpack_file
from tests.support.trees import read_tree

BUSY, CALM = range(2), range(2, 4)
PACKS, GENERATIONS = 3, 5
DEADLINE_SECONDS = 90.0
"""Generous: how soon a writer gets its turn beside packers is the machine's business."""


def files_of(entry: str, tree: Files) -> Files:
    """Return the files at and below `entry`, by their names below it."""
    return {
        path[len(entry) + 1 :]: content
        for path, content in tree.items()
        if f"{path}/".startswith(f"{entry}/")
    }


def pack_and_check(compiler: Compiler, root: Path, bundle: Path) -> dict[int, int]:
    """Pack; return the generation of each entry that arrived, by its number."""
    report = pack_to_file(root, bundle, get_kind(compiler.kind).pack)
    unpack_file(bundle, bundle.with_suffix(""))
    tree = {
        path: content
        for path, content in read_tree(bundle.with_suffix("")).items()
        if content is not None
    }
    left_out = {skip.path: skip.reason for skip in report.skipped}
    arrived = {}
    for number in (*BUSY, *CALM):
        entry = compiler.entry_of(number)
        found = files_of(entry, tree)
        assert not found or entry not in left_out
        assert found or entry in left_out or compiler.removes
        if found:
            arrived[number] = generation_of(found)
            assert found == compiler.files(arrived[number])
    assert set(arrived) >= set(CALM)
    return arrived


@pytest.mark.parametrize("name", COMPILERS)
def test_entries_that_are_written_while_they_are_packed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack, "MIN_AGE_SECONDS", 0.05)  # as in test_triton_mutator.py
    monkeypatch.setattr(pack, "_PATIENCE_SECONDS", 0.2)
    compiler, root = COMPILERS[name], tmp_path / "root"
    for number in (*BUSY, *CALM):
        compiler.write(root, compiler.entry_of(number), compiler.files(0), lambda: None)
    time.sleep(0.1)  # the patience that the busy entries use up is not for the calm ones' age
    with compiling(compiler, root, BUSY) as written:
        deadline = time.monotonic() + DEADLINE_SECONDS
        for attempt in count():
            pack_and_check(compiler, root, tmp_path / f"{attempt}.tar")
            if attempt > PACKS and len(written) > GENERATIONS:
                break
            assert time.monotonic() < deadline, f"only {written} were written"
    last = written[-1]
    arrived = pack_and_check(compiler, root, tmp_path / "calm.tar")
    assert sorted(arrived.values()) == [0, 0, last - 1, last]
