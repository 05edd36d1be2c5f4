"""The matrix's rows: what each case came to, as a table and as JSON."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import date
from pathlib import Path
from typing import Any

from tests.kinds.caches import CACHES, Cache
from tests.kinds.cases import Case, Outcome
from tests.kinds.environments import package_versions
from tests.support.child import REPOSITORY

RESULT = REPOSITORY / "build" / "kinds.json"
PACKAGES = (
    *("torch", "triton", "apache-tvm-ffi", "ninja", "flashinfer-python", "nvidia-cutlass-dsl"),
    *("sgl-deep-gemm", "tilelang", "vllm"),
)
"""Whose versions the table states."""

REASONS = 3
"""Of a row that are written out, the most frequent ones."""


@dataclass(frozen=True)
class Row:
    """One cache in one case.

    `hits`, `recompiled` and `seconds` are the program's on the target, all 0 where it was not run;
    `refused` are jobs that do not hit and that the product named, for `reason`. Without `jobs` the
    row was skipped for `reason`.
    """

    kind: str
    cache: str
    case: str
    jobs: int = 0
    hits: int = 0
    recompiled: int = 0
    refused: int = 0
    reason: str = ""
    cold_seconds: float = 0.0
    seconds: float = 0.0
    synthetic: str = ""

    @property
    def silent(self) -> int:
        """Jobs that neither hit nor were refused: there must be none."""
        return self.jobs - self.hits - self.refused


def judge(cache: Cache, case: Case, cold: dict[str, Any], outcome: Outcome) -> Row:
    """Return the row of a case that was played."""
    probe = outcome.probe or {"hits": 0, "recompiled": 0, "seconds": 0.0, "errors": []}
    jobs, hits = cold["jobs"], probe["hits"]
    # What was named and hit all the same, or belongs to no job of ours, is no refusal.
    refused = min(jobs - hits, outcome.named.total())
    shown = outcome.named.most_common(REASONS)
    reasons = [f"{count} × {reason}" for reason, count in shown]
    if len(outcome.named) > len(shown):
        reasons.append(f"{outcome.named.total() - sum(n for _, n in shown)} × others like these")
    return Row(
        kind=cache.kind,
        cache=cache.name,
        case=case.name,
        jobs=jobs,
        hits=hits,
        recompiled=probe["recompiled"],
        refused=refused,
        reason="; ".join([*probe["errors"], *(reasons if refused else [])]),
        cold_seconds=cold["seconds"],
        seconds=probe["seconds"],
        synthetic=cache.synthetic,
    )


def skipped(cache: Cache, case: Case, reason: str) -> Row:
    """Return the row of a case that cannot be played here."""
    return Row(cache.kind, cache.name, case.name, reason=reason, synthetic=cache.synthetic)


def table(rows: Sequence[Row]) -> list[str]:
    """Return the rows as text of aligned columns, for a terminal."""
    names = [field.name for field in fields(Row)]
    cells = [names, *([str(value) for value in asdict(row).values()] for row in rows)]
    widths = [min(44, max(map(len, column))) for column in zip(*cells, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]


def write(rows: Sequence[Row], path: Path = RESULT) -> None:
    """Write the rows and the conditions that they hold for.

    `complete` says whether every cache of the matrix was there to be tried.
    """
    environments = {cache.name: cache.environment for cache in CACHES}
    tried = {row.cache for row in rows if row.jobs}
    document = {
        "date": date.today().isoformat(),
        "complete": tried == set(environments),
        "conditions": {
            "cpu": _cpu_model(),
            "cores": os.cpu_count(),
            "machine": platform.machine(),
            "gpu": _gpus(),
            "python": platform.python_version(),
            "packages": {
                name: package_versions(name, PACKAGES)
                for name in dict.fromkeys(environments[cache] for cache in sorted(tried))
            },
        },
        "rows": [asdict(row) for row in rows],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n")


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"


def _gpus() -> str:
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60)
    except OSError:
        return "none"
    return listed.stdout.strip() if listed.returncode == 0 else "none"
