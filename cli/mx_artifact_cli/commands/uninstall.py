"""`mx-artifact uninstall`: take an install back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mx_artifact_cli import options
from mx_artifact_cli.options import Verb
from mx_artifact_cli.outcomes import EntriesKeptError
from mx_artifact_cli.output import Output
from mx_artifact_cli.receipts import (
    chosen_receipts,
    kind_option,
    receipt_argument,
    stated_or_located,
)
from mx_artifact_cli.selection import select_kinds
from mx_artifact_cli.text import count_of
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.node.environment import environment

if TYPE_CHECKING:
    from mx_artifacts.install.uninstall import UndoReport


@click.command("uninstall", cls=Verb)
@receipt_argument
@kind_option
@options.root_option
@options.framework_option
@click.option(
    "--force", is_flag=True, help="Remove entries that changed since, too, and believe RECEIPT."
)
@options.lock_timeout_option
@click.pass_obj
def command(
    output: Output,
    receipt: Path | None,
    kind_names: Sequence[str],
    stated_roots: Sequence[tuple[str, Path]],
    framework: str | None,
    force: bool,
    lock_timeout: float,
) -> None:
    """Remove exactly what was installed.

    Takes a RECEIPT, or all receipts of a kind's roots, where it takes back installs that were
    killed, too. Entries that changed since are kept, and the exit code is then 3; what others put
    there is never touched. A RECEIPT is believed of its own root, and of further ones that have it
    recorded too; of others only where --kind and --root name them, or with --force.
    """
    from mx_artifacts.install.uninstall import uninstall_artifact

    taken_back: list[Path] = []
    if receipt is not None and not kind_names and not stated_roots:
        paths = [receipt]  # the library knows one that was uninstalled before
    else:
        if receipt is None:
            taken_back = _take_back(output, kind_names, stated_roots, framework, lock_timeout)
        chosen = chosen_receipts(
            output, receipt, kind_names, stated_roots, framework, may_be_none=bool(taken_back)
        )
        paths = [found.path for of_kind in chosen for found in of_kind]
    roots = stated_or_located(kind_names, stated_roots, framework)
    reports = [
        uninstall_artifact(path, force=force, roots=roots, lock_timeout_seconds=lock_timeout)
        for path in paths
    ]
    output.result(
        {
            "uninstalled": [show_undo(output, report) for report in reports],
            "taken_back": taken_back,
        }
    )
    require_complete(reports)


def _take_back(
    output: Output,
    kind_names: Sequence[str],
    stated_roots: Sequence[tuple[str, Path]],
    framework: str | None,
    lock_timeout: float,
) -> list[Path]:
    """Take back installs into the kinds' roots that were killed; return and name those roots."""
    from mx_artifacts.install.recover import take_back_unfinished

    taken_back: list[Path] = []
    of_kinds = select_kinds(kind_names, stated_roots, framework=framework) if kind_names else ()
    for selected in of_kinds:
        try:
            roots = selected.roots(environment()).values()
        except ConfigurationError:  # which `chosen_receipts` tells
            continue
        taken_back += take_back_unfinished(roots, lock_timeout_seconds=lock_timeout)
    for root in taken_back:
        output.line(f"{root}: took back what an install that was killed had moved in")
    return taken_back


def show_undo(output: Output, report: UndoReport) -> dict[str, Any]:
    """Say what was removed and kept; return it for the JSON formats."""
    output.line(f"{report.kind}: artifact {report.artifact_id}")
    if not report.roots:
        output.line("  was uninstalled before")
    for root in report.roots:
        output.line(
            f"  {root.root}: {count_of(len(root.removed), 'entry', 'entries')} removed, "
            f"{len(root.kept)} kept, {len(root.superseded)} of a later install"
        )
        for entry, reason in root.kept.items():
            output.line(f"    kept {entry}: {reason}")
    described = {
        "receipt": report.receipt_path,
        "kind": report.kind,
        "artifact_id": report.artifact_id,
        "roots": [
            {
                "path": root.root,
                "removed": list(root.removed),
                "kept": dict(root.kept),
                "superseded": list(root.superseded),
            }
            for root in report.roots
        ],
    }
    output.record("uninstalled", described)
    return described


def require_complete(reports: Sequence[UndoReport]) -> None:
    """Raise EntriesKeptError when an entry was kept, naming the receipt that still lists it."""
    kept = [report for report in reports if not report.is_complete]
    if kept:
        entries = sum(len(root.kept) for report in kept for root in report.roots)
        raise EntriesKeptError(
            f"kept {count_of(entries, 'entry', 'entries')} that changed since, listed in "
            + ", ".join(str(report.receipt_path) for report in kept),
            hint=f"remove them too with `mx-artifact uninstall --force {kept[0].receipt_path}`",
        )
