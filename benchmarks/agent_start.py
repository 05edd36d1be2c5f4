"""What the start of a NIXL agent takes, as a library and as a program starts one.

    python -m benchmarks.agent_start [--rounds 5]

Prints seconds and processor seconds of the import of NIXL's bindings and the start, each in a fresh
process, by turns: the medians of the rounds. docs/performance.md has the results.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys

from benchmarks.harness.processes import finished

PROGRAM = """
import json, os, sys, time
from mx_artifacts.runtime.process import claim_process
from mx_artifacts.transport.nixl import start_agent
wall, cpu = time.perf_counter(), time.process_time()
if sys.argv[1] == "program":
    claim_process()
start_agent(f"start-{os.getpid()}", "UCX", 60.0)
print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu]), flush=True)
os._exit(0)
"""
STARTERS = ("library", "program")


def started(how: str) -> tuple[float, float]:
    """Start an agent in a fresh process; return what that took: seconds, processor seconds."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("UCX_")}
    _, printed = finished([sys.executable, "-c", PROGRAM, how], environment)
    wall, cpu = json.loads(printed.splitlines()[-1])
    return wall, cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    taken: dict[str, list[tuple[float, float]]] = {how: [] for how in STARTERS}
    for _ in range(rounds):
        for how in STARTERS:
            taken[how].append(started(how))
    print("| started by a | seconds | processor |")
    print("|---|---|---|")
    for how, each in taken.items():
        wall, cpu = (statistics.median(column) for column in zip(*each, strict=True))
        print(f"| {how} | {wall:.3f} | {cpu:.3f} |")


if __name__ == "__main__":
    main()
