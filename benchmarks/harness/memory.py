"""Measures the most memory and disk that a source and a target need for large artifacts."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness.cluster import Cluster, fresh_root
from benchmarks.harness.tree import MIB, check_equal, make_tree

SIZES_GIB = (1, 4, 8)
FILES = 64
_COPIES = 3
"""On the disk: the source's tree, its bundle, and the installed tree."""
_RESERVE = 1.1
_SAMPLE_SECONDS = 0.02


def lacking_space(disk: Path) -> str:
    """Say what is missing to measure it, or ""."""
    needed = int(max(SIZES_GIB) * 1024 * _COPIES * _RESERVE)
    free = shutil.disk_usage(disk).free // MIB
    return "" if free >= needed else f"it needs {needed} MiB of disk, and {free} MiB are free"


def peaks(ram: Path, disk: Path) -> dict[str, float]:
    """Return, for each size, the peak RSS [MiB] of a source in slots mode and of a target, each a
    fresh process, and the target's peak disk over what it installed (1.0: not a byte more).

    All of it lies on the disk; the source may keep nothing resident.
    """
    found: dict[str, float] = {}
    for gib in SIZES_GIB:
        place = disk / f"memory{gib}"
        place.mkdir()
        with contextlib.ExitStack() as resources:
            resources.callback(shutil.rmtree, place)
            cluster = Cluster(ram, resources, None)
            tree = make_tree(place / "source", mib=gib * 1024, files=FILES)
            cluster.publish(tree, resident_bytes=0)
            with fresh_root(place) as root:
                os.sync()  # what waits would take its blocks while we look
                with peak_of_used_bytes(place) as used:
                    cluster.target.ask("fetch", model="benchmark", root=str(root), replace=False)
                check_equal(tree.root, root, relocated=True)
                os.sync()
                installed = used_bytes(place) - used[0]
            found |= {
                f"source_{gib}gib": cluster.source.ask("peak_rss_mib")["mib"],
                f"target_{gib}gib": cluster.target.ask("peak_rss_mib")["mib"],
                f"disk_{gib}gib": (used[1] - used[0]) / installed,
            }
    return found


def used_bytes(place: Path) -> int:
    """Return how much of the file system of `place` is in use."""
    found = os.statvfs(place)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


@contextlib.contextmanager
def peak_of_used_bytes(place: Path) -> Iterator[list[int]]:
    """Give what is used at the begin, and at its most until the block ends.

    It counts the whole file system: on a machine that writes nothing else.
    """
    used = [used_bytes(place)] * 2
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_SAMPLE_SECONDS):
            used[1] = max(used[1], used_bytes(place))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield used
    finally:
        over.set()
        watcher.join()
