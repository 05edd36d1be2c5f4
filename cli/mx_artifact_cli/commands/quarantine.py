"""`mx-artifact quarantine`: an artifact that did harm does not come back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mx_artifact_cli import options
from mx_artifact_cli.commands.uninstall import require_complete, show_undo
from mx_artifact_cli.options import Verb
from mx_artifact_cli.output import Output
from mx_artifact_cli.receipts import receipts_of_kind, stated_or_located
from mx_artifact_cli.selection import ALL, select_kinds
from mx_artifacts import settings
from mx_artifacts.errors import ConfigurationError

if TYPE_CHECKING:
    from mx_artifacts.install.quarantine import Quarantine


@click.command("quarantine", cls=Verb)
@click.argument("artifact_id", required=False)
@click.option("--reason", default="", show_default=False, help="Why, for those who meet it later.")
@click.option("--remove", is_flag=True, help="Let the artifact out again.")
@click.option("--list", "list_all", is_flag=True, help="Show what is in quarantine.")
@click.option("--keep", is_flag=True, help="Do not uninstall it.")
@options.root_option
@options.setting_option(settings.STATE_DIR, "--state-dir")
@options.lock_timeout_option
@click.pass_obj
def command(
    output: Output,
    artifact_id: str | None,
    reason: str,
    remove: bool,
    list_all: bool,
    keep: bool,
    stated_roots: Sequence[tuple[str, Path]],
    state_dir: Path,
    lock_timeout: float,
) -> None:
    """Keep this node from fetching an artifact, and remove it where it is installed.

    It is looked for in every kind's root, or in those that --root KIND=PATH names instead. Another
    artifact that fits is fetched in its place.
    """
    from mx_artifacts.install.quarantine import NO_REASON, Quarantine

    quarantine = Quarantine(state_dir)
    if list_all == (artifact_id is not None):
        raise ConfigurationError("give either an ARTIFACT_ID or --list")
    if artifact_id is None:
        _list(output, quarantine)
    elif remove:
        was_in = quarantine.remove(artifact_id)
        output.line(f"{artifact_id} {'is let out' if was_in else 'was not in quarantine'}")
        output.result({"artifact_id": artifact_id, "removed": was_in})
    else:
        added = quarantine.add(artifact_id, reason or NO_REASON)  # first, so that it stays out
        output.line(f"{artifact_id} is quarantined in {state_dir}: {added.reason}")
        from mx_artifacts.install.uninstall import uninstall_artifact

        receipts = [] if keep else list(_receipts(output, artifact_id, stated_roots))
        roots = stated_or_located([ALL], stated_roots, None)
        reports = [
            uninstall_artifact(path, roots=roots, lock_timeout_seconds=lock_timeout)
            for path in receipts
        ]
        undone = [show_undo(output, report) for report in reports]
        if not keep and not undone:
            output.line("it is not installed in any root that was looked at")
        output.result({"quarantined": asdict(added), "uninstalled": undone})
        require_complete(reports)


def _list(output: Output, quarantine: Quarantine) -> None:
    found = list(quarantine.artifacts().values())
    if found:
        output.table(
            ("artifact", "since", "reason"), [(f.artifact_id, f.since, f.reason) for f in found]
        )
    output.note(f"{len(found)} in quarantine in {quarantine.state_directory}")
    output.result({"quarantined": [asdict(each) for each in found]})


def _receipts(
    output: Output, artifact_id: str, stated_roots: Sequence[tuple[str, Path]]
) -> Iterator[Path]:
    """Yield where receipts of the artifact are, in the roots of whichever engine."""
    from mx_artifacts.probes.engines import ENGINE_NAMES

    found: dict[Path, None] = {}
    for selected in select_kinds([ALL], stated_roots):
        try:
            for engine in ENGINE_NAMES:
                receipts = receipts_of_kind(replace(selected, engine=engine))
                of_artifact = (r for r in receipts if r.receipt.artifact.artifact_id == artifact_id)
                found |= dict.fromkeys(each.path for each in of_artifact)
        except ConfigurationError as error:
            output.note(f"{selected.kind.name} not looked for: {error}")
    yield from found
