"""Compare the transports: the same cache fetched over the stream, NIXL's TCP and NIXL's choice.

usage: python -m benchmarks.transports [--rounds N] [--mib N] [--files N] [--cli-mib N]
                                       [--output FILE]

Sources and targets share this machine's loopback and memory. NIXL's own choice is then shared
memory, which two nodes do not have. The methods of a group take turns in each round.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from benchmarks.harness import conditions
from benchmarks.harness.cluster import Cluster, fresh_root
from benchmarks.harness.copies import copy
from benchmarks.harness.rounds import Method, interleaved, median_ratio, summary
from benchmarks.harness.setting import fetch, method
from benchmarks.harness.tree import GeneratedTree, check_equal, make_tree

RAM = Path("/dev/shm")
TRANSPORTS: Mapping[str, Mapping[str, str]] = {
    "stream": {"MX_TRANSPORT": "stream"},
    "nixl_tcp": {"MX_TRANSPORT": "nixl", "UCX_TLS": "tcp"},
    "nixl": {"MX_TRANSPORT": "nixl"},
}


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mib", type=float, default=600)
    parser.add_argument("--files", type=int, default=12_000)
    parser.add_argument("--cli-mib", type=float, default=32)
    parser.add_argument("--output", type=Path, default=Path("build/bench/transports.json"))
    options = parser.parse_args()
    with contextlib.ExitStack() as resources:
        place = Path(resources.enter_context(tempfile.TemporaryDirectory(dir=RAM)))
        big = make_tree(place / "big", mib=options.mib, files=options.files)
        files = round(options.files * options.cli_mib / options.mib)
        small = make_tree(place / "small", mib=options.cli_mib, files=files)
        clusters = {
            name: Cluster(place, resources, None, stated=stated)
            for name, stated in TRANSPORTS.items()
        }
        samples = _measured(clusters, big, "fetch", options.rounds, place)
        samples |= _measured(clusters, small, "process", options.rounds, place)
    report = {
        "conditions": {
            **conditions.machine(),
            "rounds": options.rounds,
            "tree": f"{options.mib:g} MiB in {options.files} files; process: {options.cli_mib:g}",
        },
        "figures": summary(samples),
        "ratios": {
            f"{what}_{name}/{what}_nixl_tcp": median_ratio(
                samples, f"{what}_{name}", f"{what}_nixl_tcp"
            )
            for what in ("fetch", "process")
            for name in TRANSPORTS
        }
        | {f"fetch_{name}/cp": median_ratio(samples, f"fetch_{name}", "cp") for name in TRANSPORTS},
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(report, indent=2) + "\n")
    for name, value in summary(samples).items():
        print(f"{name:20} {value['median']:.3f} s")
    for name, ratio in report["ratios"].items():
        print(f"{name:32} {ratio:.2f}")
    return 0


def _measured(
    clusters: Mapping[str, Cluster], tree: GeneratedTree, what: str, rounds: int, place: Path
) -> dict[str, list[float]]:
    for cluster in clusters.values():
        cluster.publish(tree)
    run = _fetched if what == "fetch" else _in_own_process
    methods = [
        method(f"{what}_{name}", partial(run, cluster, tree, place))
        for name, cluster in clusters.items()
    ]
    if what == "fetch":
        methods.append(Method("cp", lambda: {"cp": copy("cp", tree, place)}))
    interleaved(methods, 1, print)
    return interleaved(methods, rounds, print)


def _fetched(cluster: Cluster, tree: GeneratedTree, place: Path) -> float:
    with fresh_root(place) as root:
        return fetch(cluster.target, tree, root)["seconds"]


def _in_own_process(cluster: Cluster, tree: GeneratedTree, place: Path) -> float:
    with fresh_root(place) as root:
        seconds = cluster.run_cli(root)
        check_equal(tree.root, root, relocated=True)
    return seconds


if __name__ == "__main__":
    raise SystemExit(main())
