"""Write docs/kinds.md from what `make test-kinds` found (build/kinds.json).

usage: python tools/kinds_page.py
A run that did not try every cache leaves the page as it is: it shows the last full one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOUND = ROOT / "build" / "kinds.json"
PAGE = ROOT / "docs" / "kinds.md"

HEAD = """\
<!-- Written by tools/kinds_page.py; run `make test-kinds`. -->
# Real caches, moved

This page shows how real caches behave after a move. The real compiler filled each cache here (the
column "not real" names the exceptions). Separate processes of `mx-artifact` published, fetched and
installed it. Then a fresh process ran the cache's jobs against the installed cache, with the
source's cache out of reach.

A job **hits** if it uses the installed cache and compiles nothing. A job is **refused** if our
report named its entry as not installed or not usable, with the reason. Every other job was
recompiled silently, and fails the run.

    make test-kinds                     # all; several GB of compilers are installed once, in .venvs
    make test-kinds CACHES=triton       # some: names of the first table, separated by commas

A cache is skipped, with the reason, if its compilers cannot be installed. `make test` runs a few of
these cases with few jobs. To add a cache, see tests/kinds/caches.py.
"""


def per_cache(rows: Sequence[dict[str, Any]]) -> str:
    """Return the table of what each cache came to over all cases."""
    lines = [
        "| cache | kind | jobs | cases | jobs hit | refused | silently recompiled | cold [s] "
        "| hit, median [s] | not real |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(row["cache"] for row in rows):
        played = [row for row in rows if row["cache"] == name and row["jobs"]]
        hits, refused, jobs = (sum(r[key] for r in played) for key in ("hits", "refused", "jobs"))
        warm = sorted(row["seconds"] for row in played if row["hits"] == row["jobs"])
        cells = [
            *(name, played[0]["kind"], played[0]["jobs"], len(played)),
            *(hits, refused, jobs - hits - refused, f"{played[0]['cold_seconds']:.1f}"),
            *(f"{warm[len(warm) // 2]:.2f}" if warm else "", played[0]["synthetic"]),
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def per_case(rows: Sequence[dict[str, Any]]) -> str:
    """Return the matrix: hits of jobs, and "+ n" for those that were refused."""
    cases = list(dict.fromkeys(row["case"] for row in rows))
    found = {(row["cache"], row["case"]): row for row in rows}
    lines = [f"| cache | {' | '.join(cases)} |", "|---" * (len(cases) + 1) + "|"]
    for name in dict.fromkeys(row["cache"] for row in rows):
        cells = [_cell(found.get((name, case))) for case in cases]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(row: dict[str, Any] | None) -> str:
    if row is None or not row["jobs"]:
        return "–"
    refused = f" + {row['refused']}" if row["refused"] else ""
    return f"{row['hits']}{refused}/{row['jobs']}"


def reasons(rows: Sequence[dict[str, Any]]) -> str:
    """Return why jobs were refused, or rows skipped, a line each."""
    lines: dict[str, list[str]] = {}
    for row in rows:
        if row["reason"]:
            lines.setdefault(row["reason"], []).append(f"{row['cache']}, {row['case']}")
    return "\n".join(f"- {'; '.join(where)}: {reason}" for reason, where in lines.items())


def page(found: dict[str, Any]) -> str:
    """Return the page of one run."""
    conditions, rows = found["conditions"], found["rows"]
    packages = "".join(
        f"- {name}: {', '.join(f'{p} {version}' for p, version in versions.items())}\n"
        for name, versions in conditions["packages"].items()
    )
    return (
        f"{HEAD}\n## The last full run\n\n"
        f"{found['date']}, {conditions['cores']} cores ({conditions['cpu']}), "
        f"GPU: {conditions['gpu']}, Python {conditions['python']}; by environment:\n\n{packages}\n"
        f"{per_cache(rows)}\n\n"
        "## By case\n\nJobs that hit, out of all jobs; `+ n`: n jobs were refused (reasons below); "
        "–: not run.\n\n"
        f"{per_case(rows)}\n\n"
        f"### Refused, or not run\n\n{reasons(rows) or 'Nothing.'}\n"
    )


def main() -> int:
    found = json.loads(FOUND.read_text())
    if found["complete"]:
        PAGE.write_text(page(found))
        print(f"wrote {PAGE}")
    else:
        tried = ", ".join(dict.fromkeys(row["cache"] for row in found["rows"] if row["jobs"]))
        print(f"{PAGE} is left as it is: only {tried or 'nothing'} was tried", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
