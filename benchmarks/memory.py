"""Measures the most memory that a source and a target need for an artifact larger than memory."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from benchmarks.cluster import Cluster, fresh_root
from benchmarks.tree import MIB, check_equal, make_tree

ARTIFACT_MIB = 8192
FILES = 64
_COPIES = 3
"""On the disk: the source's tree, its bundle, and the installed tree."""
_RESERVE = 1.1


def lacking_space(disk: Path) -> str:
    """Say what is missing to measure it, or ""."""
    needed = int(ARTIFACT_MIB * _COPIES * _RESERVE)
    free = shutil.disk_usage(disk).free // MIB
    return "" if free >= needed else f"it needs {needed} MiB of disk, and {free} MiB are free"


def peak_rss_mib(ram: Path, disk: Path) -> dict[str, float]:
    """Return the peak RSS [MiB] of a source in slots mode and of a target, each a fresh process.

    All of it lies on the disk; the source may keep nothing resident.
    """
    place = disk / "memory"
    place.mkdir()
    with contextlib.ExitStack() as resources:
        resources.callback(shutil.rmtree, place)
        cluster = Cluster(ram, resources, None)
        tree = make_tree(place / "source", mib=ARTIFACT_MIB, files=FILES)
        cluster.publish(tree, resident_bytes=0)
        with fresh_root(place) as root:
            cluster.target.ask("fetch", model="benchmark", root=str(root), replace=False)
            check_equal(tree.root, root, relocated=True)
        return {
            "source_8gib": cluster.source.ask("peak_rss_mib")["mib"],
            "target_8gib": cluster.target.ask("peak_rss_mib")["mib"],
        }
