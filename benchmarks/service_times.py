"""Measure what the engine takes beside the link, for benchmarks/simulate.py.

usage: python -m benchmarks.service_times [--rounds N] [--mib N] [--files N]

A tiny cache is fetched from a source on this machine, so that next to none of its time is the
link's, and then a large one, for what its install takes. Prints medians as simulate takes them.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness.cluster import Cluster, fresh_root
from benchmarks.harness.tree import make_tree
from benchmarks.transfer import RAM, new_place, stop_in_order_on_signals

TINY_MIB = 1 / 16
TINY_FILES = 8


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mib", type=float, default=600)
    parser.add_argument("--files", type=int, default=12_000)
    options = parser.parse_args()
    stop_in_order_on_signals()
    with contextlib.ExitStack() as resources:
        place = Path(resources.enter_context(new_place(RAM)))
        cluster = Cluster(place, resources, None)
        tiny = measure(cluster, place / "tiny", TINY_MIB, TINY_FILES, options.rounds)
        large = measure(cluster, place / "large", options.mib, options.files, options.rounds)
    before, transfer, _ = tiny
    print(f"--discovery-seconds {before:.3f} --attach-seconds {transfer:.3f}", end=" ")
    print(f"--install-seconds {large[-1]:.3f}")
    return 0


def measure(cluster: Cluster, place: Path, mib: float, files: int, rounds: int) -> Sequence[float]:
    """Return the median seconds of a fetch before its transfer, in it, and of the install."""
    cluster.publish(make_tree(place / "source", mib=mib, files=files))
    samples = []
    for _ in range(1 + rounds):
        with fresh_root(place) as root:
            took = cluster.target.ask("fetch", model="benchmark", root=str(root), replace=False)
        transfer, install = took["transfer_seconds"], took["install_seconds"]
        samples.append((took["seconds"] - transfer - install, transfer, install))
    return [statistics.median(column) for column in zip(*samples[1:], strict=True)]


if __name__ == "__main__":
    raise SystemExit(main())
