"""`mx-artifact verify`: compares an installed cache with its receipt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mx_artifact_cli.option_fields import takes
from mx_artifact_cli.option_groups import ReceiptOptions
from mx_artifact_cli.options import Verb
from mx_artifact_cli.output import Output
from mx_artifact_cli.receipts import chosen_receipts, roots_of
from mx_artifact_cli.text import count_of
from mx_artifacts.errors import InstallVerificationError

if TYPE_CHECKING:
    from mx_artifacts.install.receipts.receipt import RootReceipt
    from mx_artifacts.install.state.contents import RootState
    from mx_artifacts.install.verify import InstallVerification


@click.command("verify", cls=Verb)
@takes(ReceiptOptions)
@click.pass_obj
def command(output: Output, options: ReceiptOptions) -> None:
    """Check an installed cache against its receipt, byte for byte.

    State one RECEIPT, or use --kind for all receipts in the roots of a kind. The exit code is 12 if
    a file is missing or has changed after the install.
    """
    from mx_artifacts.filesystem.space import os_errors_translated
    from mx_artifacts.install.verify import verify_install

    with os_errors_translated("look for receipts"):
        chosen, roots = chosen_receipts(output, options), roots_of(options)
    verified = [
        _show(output, verify_install(found.path, roots=roots))
        for of_kind in chosen
        for found in of_kind
    ]
    output.result({"receipts": verified})
    entries = [entry for one in verified for root in one["roots"] for entry in root["entries"]]
    bad = [entry for entry in entries if entry["state"] != "intact"]
    if bad:
        raise InstallVerificationError(
            f"{len(bad)} of {count_of(len(entries), 'entry', 'entries')} changed or are missing",
            hint="remove these entries and run `mx-artifact fetch-and-install` again, or remove "
            "the "
            "whole install with `mx-artifact uninstall`",
        )


def _show(output: Output, verified: InstallVerification) -> dict[str, Any]:
    """Print the state of an install; return it for the JSON formats."""
    receipt, report = verified.receipt, verified.report
    output.line(f"{receipt.artifact.kind}: artifact {receipt.artifact.artifact_id}")
    for root, recorded in zip(report.roots, receipt.roots, strict=True):
        if recorded.installed:
            _show_entries(output, root)
        else:
            _show_kept(output, recorded)
    described = {
        "receipt": verified.receipt_path,
        "kind": receipt.artifact.kind,
        "artifact_id": receipt.artifact.artifact_id,
        "roots": [
            {
                "path": root.root,
                "entries": [
                    {
                        "entry": entry.entry,
                        "state": entry.state,
                        "changed": list(entry.changed),
                        "missing": list(entry.missing),
                    }
                    for entry in root.entries
                ],
                "kept": list(recorded.kept),
                "unusable": dict(recorded.unusable),
            }
            for root, recorded in zip(report.roots, receipt.roots, strict=True)
        ],
    }
    output.record("verified", described)
    return described


def _show_entries(output: Output, root: RootState) -> None:
    """Print how many entries have which state, and which files changed or are missing."""
    states = [entry.state for entry in root.entries]
    counts = ", ".join(f"{states.count(s)} {s}" for s in ("intact", "changed", "missing"))
    output.line(f"  {root.root}: {counts}")
    for entry in root.entries:
        if entry.state != "intact":
            files = [f"{path} (changed)" for path in entry.changed]
            files += [f"{path} (missing)" for path in entry.missing]
            output.line(f"    {entry.entry}: {', '.join(files) or 'missing'}")


def _show_kept(output: Output, root: RootReceipt) -> None:
    """Print that nothing of a root can be checked, and which kept entries were not usable."""
    kept = count_of(len(root.kept), "entry was", "entries were")
    output.line(f"  {root.root}: nothing was installed; {kept} kept, which verify does not check")
    for entry, reason in root.unusable.items():
        output.line(f"    {entry} was kept, but was not usable: {reason}")
