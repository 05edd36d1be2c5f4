"""Fetches again and again from one source, and watches what both processes hold: nothing may grow.

python -m benchmarks.flat --fetches 1000
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.harness.cluster import Cluster, fresh_root
from benchmarks.harness.processes import Node
from benchmarks.harness.tree import MIB, make_tree

WARM_UP = 10
"""Fetches after which pools, threads and connections are there."""


@dataclass(frozen=True)
class Held:
    """What a process holds: open files, threads, and resident memory [MiB]."""

    files: int
    threads: int
    rss_mib: float

    @classmethod
    def by(cls, node: Node) -> Held:
        """Return what a node holds now."""
        proc = Path("/proc") / str(node.pid)
        resident_pages = int((proc / "statm").read_text().split()[1])
        return cls(
            len(os.listdir(proc / "fd")),
            len(os.listdir(proc / "task")),
            round(resident_pages * os.sysconf("SC_PAGE_SIZE") / MIB, 1),
        )


@dataclass(frozen=True)
class Sample:
    """What the source and the target held after so many fetches."""

    fetches: int
    source: Held
    target: Held


def watch(place: Path, *, fetches: int, mib: int, files: int, samples: int = 10) -> list[Sample]:
    """Fetch into new roots below `place`; return the samples, the first after the warm-up."""
    found = []
    with contextlib.ExitStack() as resources:
        cluster = Cluster(place, resources, None)
        cluster.publish(make_tree(place / "source", mib=mib, files=files))
        every = max(1, (fetches - WARM_UP) // samples)
        for number in range(1, fetches + 1):
            with fresh_root(place) as root:
                cluster.target.ask("fetch", model="benchmark", root=str(root), replace=False)
            if number >= WARM_UP and (number - WARM_UP) % every == 0:
                held = Held.by(cluster.source), Held.by(cluster.target)
                found.append(Sample(number, *held))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fetches", type=int, default=1000)
    parser.add_argument("--mib", type=int, default=4)
    parser.add_argument("--files", type=int, default=40)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        for sample in watch(Path(place), **vars(options)):
            print(json.dumps(asdict(sample)))


if __name__ == "__main__":
    main()
