"""Compares a report's ratios with those of an earlier tree (benchmarks/baselines/)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def compared(report: Mapping[str, Any], baseline: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return a Markdown table of both, and the names of ratios that became worse.

    A ratio is worse if its median is above the greatest one of the baseline's rounds, and its least
    one above the baseline's median: so neither run's spread explains it. All ratios are better when
    smaller. Ratios that one of the two reports lacks, or has without its spread, are left out.
    """
    lines = ["| ratio | baseline (spread) | now (spread) | |", "|---|---|---|---|"]
    worse = []
    for name, now in report["ratios"].items():
        before = baseline["ratios"].get(name)
        old = baseline.get("ratio_spreads", {}).get(name)
        if now is None or before is None or old is None:
            continue
        new = report["ratio_spreads"][name]
        is_worse = now > old[1] and new[0] > before
        if is_worse:
            worse.append(name)
        verdict = "WORSE" if is_worse else ""
        lines.append(f"| {name} | {_shown(before, old)} | {_shown(now, new)} | {verdict} |")
    return "\n".join(lines), worse


def _shown(median: float, spread: tuple[float, float]) -> str:
    return f"{median:.3f} ({spread[0]:.3f} to {spread[1]:.3f})"
