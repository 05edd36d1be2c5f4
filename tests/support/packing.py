"""Bundles as files, for tests that look at their bytes."""

from __future__ import annotations

from pathlib import Path

from mx_artifacts.bundle.pack import PackReport, pack_tree
from mx_artifacts.bundle.rules import PackRules
from mx_artifacts.clock import SYSTEM_CLOCK, Clock
from mx_artifacts.memory.buffers import Buffer


def pack_to_file(
    root: Path,
    out: Path,
    rules: PackRules,
    *,
    optional: bool = False,
    clock: Clock = SYSTEM_CLOCK,
) -> PackReport:
    """Pack `root` and write the bundle to `out`."""
    packed = pack_tree(root, rules, Buffer, optional=optional, clock=clock)
    out.write_bytes(packed.memory.view)
    packed.memory.close()
    return packed.report
