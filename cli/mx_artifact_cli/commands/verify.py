"""`mx-artifact verify`: is what was installed still there as it was?"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mx_artifact_cli import options
from mx_artifact_cli.options import Verb
from mx_artifact_cli.output import Output
from mx_artifact_cli.receipts import (
    chosen_receipts,
    kind_option,
    receipt_argument,
    stated_or_located,
)
from mx_artifact_cli.text import count_of
from mx_artifacts.errors import InstallVerificationError

if TYPE_CHECKING:
    from mx_artifacts.install.receipts.receipt import RootReceipt


@click.command("verify", cls=Verb)
@receipt_argument
@kind_option
@options.root_option
@options.framework_option
@click.pass_obj
def command(
    output: Output,
    receipt: Path | None,
    kind_names: Sequence[str],
    stated_roots: Sequence[tuple[str, Path]],
    framework: str | None,
) -> None:
    """Check an installed cache against its receipt, byte for byte.

    Takes a RECEIPT, or all receipts of a kind's roots. Exits with 12 unless every file is as it
    was installed.
    """
    from mx_artifacts.filesystem.space import os_errors_translated

    verified: list[dict[str, Any]] = []
    roots = stated_or_located(kind_names, stated_roots, framework)
    with os_errors_translated("verify what was installed"):
        for of_kind in chosen_receipts(output, receipt, kind_names, stated_roots, framework):
            verified += [_verify(found.path, output, roots) for found in of_kind]
    output.result({"receipts": verified})
    entries = [entry for one in verified for root in one["roots"] for entry in root["entries"]]
    bad = [entry for entry in entries if entry["state"] != "intact"]
    if bad:
        raise InstallVerificationError(
            f"{len(bad)} of {count_of(len(entries), 'entry', 'entries')} changed since or are gone",
            hint="remove these entries and run `mx-artifact fetch-and-install` again, or take back "
            "all that is left with `mx-artifact uninstall`",
        )


def _verify(path: Path, output: Output, roots: Collection[Path]) -> dict[str, Any]:
    from mx_artifacts.install.receipts.believed import check_roots
    from mx_artifacts.install.receipts.lookup import claims, newer_than, receipts_beside
    from mx_artifacts.install.receipts.receipt import load_receipt
    from mx_artifacts.install.state.contents import verify_receipt

    receipt = load_receipt(path)
    check_roots(path, receipt, roots)
    newer = newer_than(receipts_beside(path), path)
    superseded = {entry for root in receipt.roots for entry in claims(newer, root.root)}
    report = verify_receipt(receipt, except_for=superseded)
    output.line(f"{receipt.artifact.kind}: artifact {receipt.artifact.artifact_id}")
    for root, recorded in zip(report.roots, receipt.roots, strict=True):
        if not recorded.installed:
            _show_kept(output, recorded)
            continue
        states = [entry.state for entry in root.entries]
        counts = ", ".join(f"{states.count(s)} {s}" for s in ("intact", "changed", "missing"))
        output.line(f"  {root.root}: {counts}")
        for entry in root.entries:
            if entry.state != "intact":
                files = [f"{p} (changed)" for p in entry.changed] + [
                    f"{p} (missing)" for p in entry.missing
                ]
                output.line(f"    {entry.entry}: {', '.join(files) or 'missing'}")
    described = {
        "receipt": path,
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


def _show_kept(output: Output, root: RootReceipt) -> None:
    """Say that the receipt has nothing of a root to check, and which of its entries are no use."""
    kept = count_of(len(root.kept), "entry was", "entries were")
    output.line(f"  {root.root}: installed nothing; {kept} kept, which this does not check")
    for entry, reason in root.unusable.items():
        output.line(f"    kept {entry}, which was not usable: {reason}")
