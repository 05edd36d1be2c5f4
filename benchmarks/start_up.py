"""Measure what a moved cache saves: the demo, several rounds, medians and ratios.

usage: python -m benchmarks.start_up [--rounds N] [--output FILE]

Each round compiles cold, moves the caches through real processes, and runs warm; cold and warm of a
round are measured in the same minute on the same machine, so their ratio is what counts.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.harness.conditions import cpu_model


def one_round() -> list[dict[str, Any]]:
    """Run the demo once; return its `kinds`."""
    done = subprocess.run(
        [sys.executable, "-m", "mx_artifact_cli", "--format", "json", "demo"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    kinds: list[dict[str, Any]] = json.loads(done.stdout)["kinds"]
    return kinds


def summary(rounds: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return medians per kind over all rounds; hits and misses are of the worst round."""
    rows = []
    for name in [kind["kind"] for kind in rounds[0]]:
        runs = [next(kind for kind in kinds if kind["kind"] == name) for kinds in rounds]
        rows.append(
            {
                "kind": name,
                "jobs": runs[0]["jobs"],
                "hits": min(run["hits"] for run in runs),
                "misses": max(run["misses"] for run in runs),
                "cold_seconds": statistics.median(run["cold_seconds"] for run in runs),
                "warm_seconds": statistics.median(run["warm_seconds"] for run in runs),
                "speed_up": statistics.median(
                    run["cold_seconds"] / run["warm_seconds"] for run in runs
                ),
            }
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path("build/bench/start_up.json"))
    options = parser.parse_args()
    rounds = [one_round() for _ in range(options.rounds)]
    found = summary(rounds)
    report = {
        "conditions": {
            "cpu": cpu_model(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "torch": version("torch"),
            "rounds": options.rounds,
        },
        "kinds": found,
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report["conditions"]))
    print("| kind | jobs | hits | recompiled | cold [s] | warm [s] | speed-up |")
    print("|---|---|---|---|---|---|---|")
    for row in found:
        print(
            f"| {row['kind']} | {row['jobs']} | {row['hits']} | {row['misses']} "
            f"| {row['cold_seconds']:.1f} | {row['warm_seconds']:.1f} | {row['speed_up']:.1f} |"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
