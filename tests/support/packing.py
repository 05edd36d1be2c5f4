"""Bundles as files, for tests that look at their bytes."""

from __future__ import annotations

import os
from pathlib import Path

from mx_artifacts.bundle.pack import pack_tree
from mx_artifacts.bundle.packed import PackReport
from mx_artifacts.bundle.rules import PackRules
from mx_artifacts.bundle.scan import DEFAULT_LIMITS, BundleLimits
from mx_artifacts.filesystem.access import Access
from mx_artifacts.install.receipts.receipt import InstalledFile
from mx_artifacts.install.staging.bundle_sink import BundleSink
from mx_artifacts.install.staging.tree_writer import TreeWriter
from mx_artifacts.memory.buffers import Buffer
from mx_artifacts.runtime.clock import SYSTEM_CLOCK, Clock, FakeClock

SETTLED = FakeClock()
"""Its time is long ago: to this clock no file is fresh, so packing never pauses."""


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


def unpack_file(
    bundle: Path,
    destination: Path,
    *,
    part_bytes: int = 1 << 20,
    limits: BundleLimits = DEFAULT_LIMITS,
) -> tuple[tuple[InstalledFile, ...], tuple[str, ...]]:
    """Write the members of the bundle in a file below the new directory `destination`.

    It comes in parts of `part_bytes`. Returns files and directories.
    """
    destination.mkdir(exist_ok=True)
    access = Access(os.geteuid(), os.getegid(), group_write=False)
    writer = TreeWriter(destination, access)
    content = memoryview(bundle.read_bytes())
    sink = BundleSink(len(content), writer, limits)
    try:
        for offset in range(0, len(content), part_bytes):
            sink.write(offset, content[offset : offset + part_bytes])
        sink.finish()
        return writer.finish()
    finally:
        writer.close()
