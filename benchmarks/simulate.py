"""Simulate fleets of 10 to 10,000 nodes that fetch one artifact at once (harness/swarm.py).

usage: python -m benchmarks.simulate [--nodes N,...] [--mib N] [--mbit N] [--span-mib N] [--vary]
                                     [--output FILE]

Prints when the last node has installed, over one node alone, by policy and nodes. `--vary` also
changes one choice of the seeding policy at a time, to see which of them count.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.harness.processes import REPOSITORY
from benchmarks.harness.swarm import Policy, Service, one_after_the_other, swarm, tree

MOST_READS = 200_000
"""Of one simulation, about 10 s; above it spans are taken larger, which makes it start slower."""
DISCOVERY_SECONDS = 0.014
ATTACH_SECONDS = 0.031
INSTALL_SECONDS = 1.28
"""As `python -m benchmarks.service_times` measured them, on two busy cores of an AMD EPYC."""
READ_SECONDS = 0.002
"""How late the end of a read may be seen (transport/nixl_transport.py: LAST_POLL_SECONDS)."""
VARIED: dict[str, Sequence[Any]] = {
    "sources": (1, 2, 8, 16),
    "reads_per_source": (2, 4),
    "leases": (1, 2, 8, 16, 1_000_000),
    "sample": (4, 8, 32),
    "order": ("sequential", "rarest", "rarest_of_sample"),
    "availability_seconds": (0.01, 0.25, 1.0),
    "first_discovery_seconds": (0.02, 0.25),
    "last_discovery_seconds": (0.1, 1.0, 5.0),
}
VARIED_NODES = (8, 100)
_SEEDS = (1, 2, 3)


@dataclass(frozen=True)
class Fleet:
    """An artifact and the links that it moves over."""

    mib: float
    mbit: float
    span_mib: float
    service_seconds: tuple[float, float, float, float]

    def service(self, span_mib: float) -> Service:
        """Return the service times for spans of `span_mib`."""
        return Service(span_mib * (1 << 23) / (self.mbit * 1e6), *self.service_seconds)

    def policy(self, service: Service) -> Policy:
        """Return the default, but for asking no oftener than a span takes: nothing new is there."""
        chosen = Policy()
        return replace(
            chosen, availability_seconds=max(chosen.availability_seconds, service.span_seconds)
        )

    def ratios(self, nodes: int) -> dict[str, Any]:
        """Return the time of the last of `nodes` over one alone, by policy."""
        span_mib = max(self.span_mib, self.mib * nodes / MOST_READS)
        spans = math.ceil(self.mib / span_mib)
        service = self.service(span_mib)
        alone = one_after_the_other(1, spans, service)
        return {
            "nodes": nodes,
            "span_mib": span_mib,
            "one_alone_seconds": alone,
            "no_seeding": one_after_the_other(nodes, spans, service) / alone,
            "seed_when_complete": tree(nodes, spans, service) / alone,
            "seed_while_receiving": swarm(nodes, spans, service, self.policy(service)) / alone,
        }

    def varied(self) -> Iterator[dict[str, Any]]:
        """Give the ratios of seeding while receiving, with one choice changed at a time."""
        spans, service = math.ceil(self.mib / self.span_mib), self.service(self.span_mib)
        alone = one_after_the_other(1, spans, service)
        changes: list[dict[str, Any]] = [{}]
        changes += [{name: value} for name, values in VARIED.items() for value in values]
        for change in changes:
            policy = replace(self.policy(service), **change)
            ratios = {
                str(nodes): sum(swarm(nodes, spans, service, policy, seed) for seed in _SEEDS)
                / len(_SEEDS)
                / alone
                for nodes in VARIED_NODES
            }
            yield {"change": change, "ratios": ratios}


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    numbers = [10, 100, 1000, 10_000]
    parser.add_argument("--nodes", type=_integers, default=numbers, help="by commas")
    parser.add_argument("--mib", type=float, default=600, help="the artifact [MiB]")
    parser.add_argument("--mbit", type=float, default=10_000, help="each link, each way [Mbit/s]")
    parser.add_argument("--span-mib", type=float, default=8, help="what is read at once [MiB]")
    parser.add_argument("--discovery-seconds", type=float, default=DISCOVERY_SECONDS)
    parser.add_argument("--attach-seconds", type=float, default=ATTACH_SECONDS)
    parser.add_argument("--read-seconds", type=float, default=READ_SECONDS)
    parser.add_argument("--install-seconds", type=float, default=INSTALL_SECONDS)
    parser.add_argument("--vary", action="store_true")
    parser.add_argument("--output", type=Path, default=REPOSITORY / "build/bench/simulation.json")
    return parser.parse_args()


def _integers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def main() -> int:
    options = read_options()
    overheads = ("discovery", "attach", "read", "install")
    seconds = tuple(getattr(options, f"{name}_seconds") for name in overheads)
    fleet = Fleet(options.mib, options.mbit, options.span_mib, seconds)
    gc.disable()  # there are no cycles, and looking for them takes most of the time of large ones
    try:
        rows = list(_shown_ratios(fleet, options.nodes))
        varied = list(_shown_changes(fleet)) if options.vary else []
    finally:
        gc.enable()
    report = {
        "fleet": asdict(fleet),
        "policy": asdict(Policy()),
        "ratios": rows,
        "varied": varied,
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(report, indent=2) + "\n")
    return 0


def _shown_ratios(fleet: Fleet, sizes: Sequence[int]) -> Iterator[dict[str, Any]]:
    print(f"{fleet.mib:g} MiB, links of {fleet.mbit:g} Mbit/s; last node over one alone\n")
    print("| nodes | span [MiB] | alone [s] | no seeding | when complete | while receiving |")
    print("|---|---|---|---|---|---|")
    for nodes in sizes:
        row = fleet.ratios(nodes)
        print("|", " | ".join(f"{round(value, 2):,g}" for value in row.values()), "|", flush=True)
        yield row


def _shown_changes(fleet: Fleet) -> Iterator[dict[str, Any]]:
    print(f"\n| changed | {' | '.join(f'{nodes} nodes' for nodes in VARIED_NODES)} |")
    print(f"|---|{'---|' * len(VARIED_NODES)}")
    for change in fleet.varied():
        name = ", ".join(f"{key} {value}" for key, value in change["change"].items())
        cells = " | ".join(f"{ratio:.2f}" for ratio in change["ratios"].values())
        print(f"| {name or 'nothing'} | {cells} |", flush=True)
        yield change


if __name__ == "__main__":
    raise SystemExit(main())
