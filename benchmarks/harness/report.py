"""Puts the transfer benchmark's report together, and prints it as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.harness import memory
from benchmarks.harness.figure_groups import GROUPS, NO_RSYNC
from benchmarks.harness.rounds import median_ratio, round_ratios, summary

MUST_REACH = {
    "seal_over_tar": 1.5,
    "fetch_over_cp_tmpfs": 1.5,
    "fetch_over_cp_disk": 1.0,
    "fetch_over_reference": 0.25,
    "cli_over_reference": 0.5,
    "incremental_time": 0.2,
    "incremental_bytes": 0.02,
    "fanout16_over_serial": 0.9,
    "seeding8_over_one": 2.5,
    "resume_time": 0.75,
    "resume_bytes": 0.65,
    "compressed_over_plain": 0.8,
    "compressed_over_plain_random": 1.05,
}
MUST_REACH_RSS_MIB = {
    f"{role}_{gib}gib": 600 for gib in memory.SIZES_GIB for role in ("source", "target")
}
MUST_REACH_DISK = {f"disk_{gib}gib": 1.05 for gib in memory.SIZES_GIB}


@dataclass
class Report:
    """What was measured, and why the rest was not. `why_not` is by group, and "memory"."""

    conditions: Mapping[str, Any]
    samples: dict[str, list[float]] = field(default_factory=dict)
    peaks: dict[str, float] = field(default_factory=dict)
    why_not: dict[str, str] = field(default_factory=dict)

    def ratios(self) -> dict[str, float | None]:
        """Return every ratio; None: not measured."""
        made = {
            name: median_ratio(self.samples, *figures)
            for group in GROUPS.values()
            for name, figures in group.ratios.items()
        }
        return {name: made.get(name) for name in MUST_REACH}

    def spreads(self) -> dict[str, tuple[float, float]]:
        """Return the least and the greatest ratio of all rounds, where there is one."""
        measured = {
            name: round_ratios(self.samples, *figures)
            for group in GROUPS.values()
            for name, figures in group.ratios.items()
        }
        return {name: (min(each), max(each)) for name, each in measured.items() if each}

    def reasons(self) -> dict[str, str]:
        """Say of each ratio and each peak that is None why it is."""
        of_ratio = {
            name: self.why_not.get(key, group.lacking)
            for key, group in GROUPS.items()
            for name in group.ratios
        }
        reasons = {name: of_ratio[name] for name, ratio in self.ratios().items() if ratio is None}
        for name in (MUST_REACH_RSS_MIB | MUST_REACH_DISK).keys() - self.peaks.keys():
            reasons[name] = self.why_not["memory"]
        return reasons | self._reasons_of_seconds()

    def _reasons_of_seconds(self) -> dict[str, str]:
        return {
            name: self.why_not.get(key, NO_RSYNC if name.startswith("rsync") else group.lacking)
            for key, group in GROUPS.items()
            for name in group.seconds
            if name not in self.samples
        }

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON has it."""
        of_bytes = {name for name in self.samples if name.startswith("bytes_")}
        figures = summary(self.samples)
        return {
            "conditions": dict(self.conditions),
            "ratios": self.ratios(),
            "ratio_spreads": self.spreads(),
            "rss_mib": {name: self.peaks.get(name) for name in MUST_REACH_RSS_MIB},
            "peak_disk": {name: self.peaks.get(name) for name in MUST_REACH_DISK},
            "reasons": self.reasons(),
            "seconds": {
                **{name: each for name, each in figures.items() if name not in of_bytes},
                **dict.fromkeys(self._reasons_of_seconds()),
            },
            "bytes": {name: each for name, each in figures.items() if name in of_bytes},
        }


def tables(report: Mapping[str, Any]) -> str:
    """Return the report as Markdown."""
    lines = [f"- {name}: {value}" for name, value in report["conditions"].items()]
    lines += ["", *_row("what", "median [s]", "fastest", "slowest"), *_row(*["---"] * 4)]
    for name, figure in report["seconds"].items():
        if figure is None:
            lines += _row(name, report["reasons"][name], "", "")
            continue
        samples = figure["samples"]
        shown = (f"{value:.3f}" for value in (figure["median"], min(samples), max(samples)))
        lines += _row(name, *shown)
    lines += ["", *_row("figure", "measured", "must reach"), *_row(*["---"] * 3)]
    for name, limit in MUST_REACH.items():
        lines += _row(name, _measured(report, report["ratios"][name], name, "{:.3f}"), f"≤ {limit}")
    for name, limit in MUST_REACH_RSS_MIB.items():
        value = _measured(report, report["rss_mib"][name], name, "{:.0f} MiB")
        lines += _row(f"peak RSS, {name}", value, f"≤ {limit} MiB")
    for name, limit in MUST_REACH_DISK.items():
        value = _measured(report, report["peak_disk"][name], name, "{:.3f}")
        lines += _row(f"peak disk over installed, {name}", value, f"≤ {limit}")
    return "\n".join(lines)


def _measured(report: Mapping[str, Any], value: float | None, name: str, shape: str) -> str:
    return report["reasons"][name] if value is None else shape.format(value)


def _row(*cells: str) -> Sequence[str]:
    return (f"| {' | '.join(cells)} |",)
