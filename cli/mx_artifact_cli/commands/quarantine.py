"""`mx-artifact quarantine`: keeps this node from fetching an artifact that did harm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mx_artifact_cli import options as shared
from mx_artifact_cli.commands.uninstall import require_complete, show_undo
from mx_artifact_cli.option_fields import option, takes
from mx_artifact_cli.options import Verb
from mx_artifact_cli.output import Output
from mx_artifact_cli.selection import ALL, select_kinds
from mx_artifact_cli.text import count_of
from mx_artifacts import settings
from mx_artifacts.errors import ConfigurationError

if TYPE_CHECKING:
    from mx_artifacts.install.quarantine import Quarantine, QuarantinedArtifact
    from mx_artifacts.install.receipts.lookup import FoundReceipt
    from mx_artifacts.workflows.selected_kind import SelectedKind


@dataclass(frozen=True)
class QuarantineOptions:
    """What `quarantine` is asked for."""

    artifact_id: str | None = option(click.argument("artifact_id", required=False))
    reason: str = option(
        click.option(
            "--reason", default="", show_default=False, help="Reason, which later messages show."
        )
    )
    remove: bool = option(
        click.option("--remove", is_flag=True, help="Remove the artifact from the quarantine.")
    )
    list_all: bool = option(
        click.option("--list", "list_all", is_flag=True, help="List the artifacts in quarantine.")
    )
    keep: bool = option(click.option("--keep", is_flag=True, help="Do not uninstall the artifact."))
    stated_roots: tuple[tuple[str, Path], ...] = option(shared.root_option)
    state_dir: Path = option(shared.setting_option(settings.STATE_DIR, "--state-dir"))
    lock_timeout: float = option(shared.lock_timeout_option)


@click.command("quarantine", cls=Verb)
@takes(QuarantineOptions)
@click.pass_obj
def command(output: Output, options: QuarantineOptions) -> None:
    """Remove an artifact from this node and do not fetch it again.

    The command uninstalls the artifact from the root of every kind; --root KIND=PATH names another
    root. If another artifact fits this node, a later fetch uses that one.
    """
    from mx_artifacts.install.quarantine import NO_REASON, Quarantine

    quarantine, artifact_id = Quarantine(options.state_dir), options.artifact_id
    if options.list_all == (artifact_id is not None):
        raise ConfigurationError(
            "quarantine needs either an ARTIFACT_ID or --list",
            hint="`mx-artifact sources list --format json` and receipts have artifact ids",
        )
    if artifact_id is None:
        _list(output, quarantine)
    elif options.remove:
        was_in = quarantine.remove(artifact_id)
        output.line(
            f"{artifact_id} {'was removed from' if was_in else 'was not in'} the quarantine"
        )
        output.result({"artifact_id": artifact_id, "removed": was_in})
    else:
        added = quarantine.add(artifact_id, options.reason or NO_REASON)  # so that it stays out
        output.line(f"{artifact_id} is quarantined in {options.state_dir}: {added.reason}")
        _uninstall(output, options, added)


def _uninstall(output: Output, options: QuarantineOptions, added: QuarantinedArtifact) -> None:
    """Uninstall a quarantined artifact from all roots, unless --keep is set."""
    from mx_artifacts.install.uninstall import uninstall_artifact
    from mx_artifacts.workflows.receipts import believed_roots

    selected = () if options.keep else select_kinds([ALL], options.stated_roots)
    roots = believed_roots(selected)
    reports = [
        uninstall_artifact(found.path, roots=roots, lock_timeout_seconds=options.lock_timeout)
        for each in selected
        for found in _receipts(output, each, added.artifact_id)
    ]
    undone = [show_undo(output, report) for report in reports]
    if not (options.keep or undone):
        output.line("it is not installed in any of the searched roots")
    output.result({"quarantined": asdict(added), "uninstalled": undone})
    require_complete(reports)


def _list(output: Output, quarantine: Quarantine) -> None:
    found = list(quarantine.artifacts().values())
    if found:
        output.table(
            ("artifact", "since", "reason"), [(f.artifact_id, f.since, f.reason) for f in found]
        )
    output.note(
        f"{count_of(len(found), 'artifact')} in the quarantine in {quarantine.state_directory}"
    )
    output.result({"quarantined": [asdict(each) for each in found]})


def _receipts(output: Output, selected: SelectedKind, artifact_id: str) -> Sequence[FoundReceipt]:
    from mx_artifacts.workflows.receipts import receipts_of_artifact

    try:
        return receipts_of_artifact(selected, artifact_id)
    except ConfigurationError as error:
        output.note(f"{selected.name} was not searched: {error}")
        return ()
