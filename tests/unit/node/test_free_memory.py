"""How much memory is free: the least of what the machine and the container say."""

from __future__ import annotations

from pathlib import Path

import pytest

from mx_artifacts.node.free_memory import free_memory_bytes
from tests.support.trees import Tree, write_tree

MACHINE: Tree = {"proc": {"meminfo": b"MemTotal: 999 kB\nMemAvailable:   64 kB\n"}}


def container(**files: bytes) -> Tree:
    return {"sys": {"fs": {"cgroup": {name.replace("_dot_", "."): v for name, v in files.items()}}}}


@pytest.mark.parametrize(
    ("tree", "free"),
    [
        (MACHINE, 64 * 1024),
        ({**MACHINE, **container(memory_dot_max=b"max\n", memory_dot_current=b"1\n")}, 64 * 1024),
        ({**MACHINE, **container(memory_dot_max=b"1000\n", memory_dot_current=b"900\n")}, 100),
        (container(memory_dot_max=b"1000\n", memory_dot_current=b"2000\n"), 0),
        ({"proc": {"meminfo": b"nothing of use\n"}}, None),
        ({}, None),
    ],
)
def test_the_least_counts(tmp_path: Path, tree: Tree, free: int | None) -> None:
    assert free_memory_bytes(write_tree(tmp_path / "root", tree)) == free


def test_this_machine_has_some() -> None:
    found = free_memory_bytes()
    assert found is not None
    assert found > 1 << 20
