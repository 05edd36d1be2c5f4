"""`mx-artifact uninstall`: removes what an install put into its roots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mx_artifact_cli import options as shared
from mx_artifact_cli.option_fields import nested, option, takes
from mx_artifact_cli.option_groups import ReceiptOptions
from mx_artifact_cli.options import Verb
from mx_artifact_cli.outcomes import EntriesKeptError
from mx_artifact_cli.output import Output
from mx_artifact_cli.receipts import chosen_receipts, roots_of, selected_of
from mx_artifact_cli.text import count_of

if TYPE_CHECKING:
    from mx_artifacts.install.uninstall import UndoReport


@dataclass(frozen=True)
class UninstallOptions:
    """What `uninstall` is asked for."""

    chosen: ReceiptOptions = nested(ReceiptOptions)
    force: bool = option(
        click.option(
            "--force",
            is_flag=True,
            help="Also remove changed entries, and trust RECEIPT for all roots that it names.",
        )
    )
    lock_timeout: float = option(shared.lock_timeout_option)


@click.command("uninstall", cls=Verb)
@takes(UninstallOptions)
@click.pass_obj
def command(output: Output, options: UninstallOptions) -> None:
    """Remove exactly what was installed.

    State one RECEIPT, or use --kind for all receipts in the roots of a kind. With --kind, it also
    takes back installs that were killed. Entries that changed after the install are kept, and then
    the exit code is 3. Entries that other programs created are never removed. A RECEIPT is trusted
    for the root in which it is, and for other roots that have recorded it, too. It is trusted for
    further roots only if --kind and --root name them, or with --force.
    """
    from mx_artifacts.install.uninstall import uninstall_artifact

    chosen, taken_back = options.chosen, []
    if chosen.receipt is not None and not chosen.kind_names and not chosen.stated_roots:
        paths = [chosen.receipt]  # the library recognizes a receipt that was uninstalled before
    else:
        if chosen.receipt is None:
            taken_back = _take_back(output, options)
        found = chosen_receipts(output, chosen, may_be_none=bool(taken_back))
        paths = [each.path for of_kind in found for each in of_kind]
    roots = roots_of(chosen)
    reports = [
        uninstall_artifact(
            path, force=options.force, roots=roots, lock_timeout_seconds=options.lock_timeout
        )
        for path in paths
    ]
    output.result(
        {
            "uninstalled": [show_undo(output, report) for report in reports],
            "taken_back": taken_back,
        }
    )
    require_complete(reports)


def _take_back(output: Output, options: UninstallOptions) -> list[Path]:
    """Take back killed installs into the roots of the kinds; print and return these roots."""
    from mx_artifacts.workflows.receipts import take_back_interrupted

    if not options.chosen.kind_names:
        return []
    selected = selected_of(options.chosen)
    taken_back = take_back_interrupted(selected, lock_timeout_seconds=options.lock_timeout)
    for root in taken_back:
        output.line(f"{root}: took back what a killed install had moved there")
    return taken_back


def show_undo(output: Output, report: UndoReport) -> dict[str, Any]:
    """Print what was removed and kept; return it for the JSON formats."""
    output.line(f"{report.kind}: artifact {report.artifact_id}")
    if not report.roots:
        output.line("  was already uninstalled")
    for root in report.roots:
        output.line(
            f"  {root.root}: {count_of(len(root.removed), 'entry', 'entries')} removed, "
            f"{len(root.kept)} kept, {len(root.superseded)} left because a later install owns them"
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
    """Raise EntriesKeptError if an entry was kept; it names the receipt that still lists it."""
    kept = [report for report in reports if not report.is_complete]
    if kept:
        entries = sum(len(root.kept) for report in kept for root in report.roots)
        raise EntriesKeptError(
            f"kept {count_of(entries, 'entry', 'entries')} that changed after the install, listed "
            "in " + ", ".join(str(report.receipt_path) for report in kept),
            hint=f"to remove them, too, run `mx-artifact uninstall --force {kept[0].receipt_path}`",
        )
