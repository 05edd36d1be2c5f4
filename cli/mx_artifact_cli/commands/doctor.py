"""`mx-artifact doctor`: checks whether this node can publish and fetch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mx_artifact_cli import options
from mx_artifact_cli.options import Verb, parsed_option
from mx_artifact_cli.outcomes import NodeUnfitError
from mx_artifact_cli.output import Output
from mx_artifact_cli.selection import ALL, select_kinds
from mx_artifacts import parsing

if TYPE_CHECKING:
    pass


@click.command("doctor", cls=Verb)
@options.kind_option("every kind", required=False)
@options.root_option
@options.framework_option
@options.server_option
@parsed_option(
    "--timeout",
    parsing.parse_duration,
    "Time limit for a NIXL agent to start and for the central server to answer.",
    default="20s",
)
@click.pass_obj
def command(
    output: Output,
    kind_names: Sequence[str],
    stated_roots: Sequence[tuple[str, Path]],
    framework: str | None,
    server: str,
    timeout: float,
) -> None:
    """Check this node before it publishes or fetches.

    It checks roots, file systems, space, the tools that the kinds need (ninja, compilers), the
    compiled part of this installation, the user, limits, transport, central server and clock, and
    the metadata backend if MX_METADATA_BACKEND names one. The exit code is 0 if no check failed.
    Otherwise, it is the code of the error that the first failed check would cause in another
    command. Without --kind, a missing tool is only a warning, because only some kinds need it.
    """
    from mx_artifacts.workflows.check_node import check_node

    selected = select_kinds(kind_names or [ALL], stated_roots, framework=framework)
    asked = bool(kind_names) and ALL not in kind_names
    checks = []
    for check in check_node(selected, server, tools_required=asked, timeout_seconds=timeout):
        checks.append(check)
        output.record("check", asdict(check))
        output.line(f"{check.level.value:<4}  {check.name}: {check.what}")
        if check.next_step:
            output.line(f"      next: {check.next_step}")
    output.result({"checks": [asdict(check) for check in checks]})
    failed = [check for check in checks if check.level.value == "fail"]
    if failed:
        raise NodeUnfitError(
            f"{len(failed)} of {len(checks)} checks failed: "
            + ", ".join(f"{check.name} ({check.what})" for check in failed),
            exit_code=failed[0].exit_code,
            hint=failed[0].next_step,
        )
