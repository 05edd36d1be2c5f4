"""Measure what it takes to seal, fetch and install a cache, against local copies and modelexpress.

usage: python -m benchmarks.transfer [--rounds N] [--mib N] [--files N] [--mbit N]
                                     [--only GROUP,...] [--peers PYTHON] [--memory] [--output FILE]
                                     [--baseline FILE]

Every figure is measured in rounds in which all of its group's methods take turns (the first round
only warms up and is not counted); a ratio is the median of the rounds' ratios. Each method ends in
the same tree, compared byte for byte outside its timing. What each figure includes:
docs/performance.md. Ends with 1 when something that was asked for could not be measured, with 2
when a ratio is worse than that of `--baseline` (an earlier `--output`) by more than both spreads.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import conditions, memory
from benchmarks.harness.baseline import compared
from benchmarks.harness.cluster import Cluster, Peers
from benchmarks.harness.figure_groups import GROUPS
from benchmarks.harness.moved import GENERATED
from benchmarks.harness.network import NoNetworkError, network
from benchmarks.harness.processes import REPOSITORY, ProcessFailedError
from benchmarks.harness.real_caches import NoCompilerError, RealCache
from benchmarks.harness.report import Report, tables
from benchmarks.harness.rounds import interleaved
from benchmarks.harness.setting import Setting
from benchmarks.harness.tree import TreesDifferError
from mx_artifacts import settings

RAM = Path("/dev/shm")
PREFIX = "mx-bench-"
DURABLE = (
    "fetch_disk: journal, receipt and names of entries are on the disk when it ends; "
    "fetch_durable_disk and cp_synced_disk: all files and directories are (fsync, sync -f); "
    "cp, tar, rsync and modelexpress ask for nothing"
)
FAILURES = (ProcessFailedError, TreesDifferError, OSError)


def main() -> int:
    options = read_options()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    stop_in_order_on_signals()
    with contextlib.ExitStack() as resources:
        ram, disk = (
            Path(resources.enter_context(new_place(place)))
            for place in (RAM, options.output.parent)
        )
        report = Report(
            {
                **conditions.machine(),
                "rounds": options.rounds,
                "tree": f"{options.mib:g} MiB in {options.files} files",
                "shaped_links": f"{options.mbit:g} Mbit/s each way",
                "memory_file_system": conditions.file_system(ram),
                "disk_file_system": conditions.file_system(disk),
                "transport": settings.TRANSPORT.read(),
                "durable": DURABLE,
            }
        )
        failed = measure(report, options, ram, disk)
    made = report.as_dict()
    options.output.write_text(json.dumps(made, indent=2) + "\n")
    print(tables(made))
    worse: list[str] = []
    if options.baseline is not None:
        table, worse = compared(made, json.loads(options.baseline.read_text()))
        print(f"\ncompared with {options.baseline}:\n\n{table}")
    return 1 if failed else 2 if worse else 0


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mib", type=float, default=600)
    parser.add_argument("--files", type=int, default=12_000)
    parser.add_argument("--mbit", type=float, default=150, help="of each shaped link")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(GROUPS))
    parser.add_argument("--peers", type=Path, help="Python of modelexpress's environment")
    parser.add_argument("--memory", action="store_true", help="also artifacts of 1, 4 and 8 GiB")
    parser.add_argument("--baseline", type=Path, help="report of an earlier tree")
    parser.add_argument("--output", type=Path, default=REPOSITORY / "build/bench/transfer.json")
    options = parser.parse_args()
    known = {*GROUPS, *(name.partition("/")[0] for name in GROUPS)}
    if unknown := set(options.only) - known:
        parser.error(f"--only: {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    return options


def is_asked_for(name: str, only: Sequence[str]) -> bool:
    """Return whether `only` names a group, or its first part: "real" means "real/triton" etc."""
    return name in only or name.partition("/")[0] in only


def stop_in_order_on_signals() -> None:
    """End with nothing left on what would else end the process at once."""

    def stop(number: int, frame: object) -> None:
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)


def new_place(parent: Path) -> tempfile.TemporaryDirectory[str]:
    """Make a directory to work in; remove those of benchmarks that were killed."""
    for left in parent.glob(f"{PREFIX}*"):
        if not Path("/proc", left.name.split("-")[2]).exists():
            shutil.rmtree(left, ignore_errors=True)
    return tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-", dir=parent)


def measure(report: Report, options: argparse.Namespace, ram: Path, disk: Path) -> bool:
    """Fill `report`; return whether something that was asked for failed."""
    failures: dict[str, str] = {}
    for name in GROUPS:
        if not is_asked_for(name, options.only):
            report.why_not[name] = "not asked for: --only"
            continue
        try:
            measure_group(report, name, options, ram, disk)
        except NoNetworkError as error:
            report.why_not[name] = f"no shaped links here: {error}"
            tell(f"{name} {report.why_not[name]}")
        except NoCompilerError as error:
            report.why_not[name] = str(error)
            tell(f"{name}: {error}")
        except FAILURES as error:
            failures[name] = f"failed: {error}".strip().replace("\n", " ")
    lacking = "not asked for: --memory" if not options.memory else memory.lacking_space(disk)
    if lacking:
        report.why_not["memory"] = lacking
    else:
        try:
            report.peaks.update(memory.peaks(ram, disk))
        except FAILURES as error:
            failures["memory"] = f"failed: {error}".strip().replace("\n", " ")
    report.why_not.update(failures)
    for name, reason in failures.items():
        tell(f"{name} {reason}")
    return bool(failures)


def measure_group(
    report: Report, name: str, options: argparse.Namespace, ram: Path, disk: Path
) -> None:
    """Run the methods of a group, with nodes of its own, and nothing of it left afterwards."""
    tell(f"{name}: starting")
    place = ram / name.replace("/", "-")
    place.mkdir()
    with contextlib.ExitStack() as resources:
        resources.callback(shutil.rmtree, place)
        group, joined, cache = GROUPS[name], None, None
        if group.nodes:
            joined = resources.enter_context(network(group.nodes, options.mbit))
        if group.cache:
            cache = RealCache(group.cache, place / "source", place)
        moved = GENERATED if cache is None else cache.moved()
        cluster = Cluster(place, resources, options.peers, joined, moved)
        peers = Peers(cluster, resources) if options.peers is not None else None
        setting = Setting(options.mib, options.files, place, disk, cluster, peers, cache)
        methods = group.methods(setting)
        interleaved(methods, 1, lambda text: tell(f"{name}, warming up: {text}"))
        report.samples.update(
            interleaved(methods, options.rounds, lambda text: tell(f"{name}, {text}"))
        )


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
