"""The options by which nodes install all or none, and the warning where they should."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from mx_artifact_cli.options import parsed_option
from mx_artifact_cli.output import Output
from mx_artifacts import settings
from mx_artifacts.core.groups import MAX_SIZE
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.parsing import parse_duration, parse_group_name, parse_integer

if TYPE_CHECKING:
    from mx_artifact_cli.selection import SelectedKind
    from mx_artifacts.artifacts.target.group_member import GroupWanted

_OPTIONS = (
    parsed_option(
        "--group",
        parse_group_name,
        "Install on all nodes of this group or on none; NAME or NAME/RUN, the same on all.",
        metavar="NAME",
    ),
    parsed_option(
        "--group-size",
        parse_integer(1, MAX_SIZE),
        "How many nodes the group has; 1: there is only this one.",
        metavar="N",
    ),
    parsed_option(
        "--group-member",
        parse_group_name,
        "This node's name in the group.  [default: POD_NAME, else the host's name; with "
        "--node-rank and --worker-rank]",
        metavar="NAME",
    ),
    parsed_option(
        "--group-timeout",
        parse_duration,
        "How long to wait, when ready, until the other nodes are.",
        default="10m",
    ),
)


def group_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of groups to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def group_wanted(options: Mapping[str, Any]) -> GroupWanted | None:
    """Return the group that the options name; None for a node alone.

    Raises:
        ConfigurationError: one of --group and --group-size lacks the other.
    """
    name, size = options["group"], options["group_size"]
    if size == 1 or (name is None and size is None):
        return None
    if name is None or size is None:
        raise ConfigurationError(
            "--group and --group-size belong together",
            hint="give both, the same on all nodes: --group NAME --group-size N",
        )
    from mx_artifacts.artifacts.target.group_member import GroupWanted

    member = options["group_member"] or _this_node(options["node_rank"], options["worker_rank"])
    return GroupWanted(name, size, member, options["group_timeout"])


def _this_node(node_rank: int | None, worker_rank: int | None) -> str:
    parts = [settings.POD_NAME.read() or socket.gethostname()]
    parts += [f"node{node_rank}"] if node_rank is not None else []
    parts += [f"worker{worker_rank}"] if worker_rank is not None else []
    return ".".join(parts)


def warn_of_asymmetry(output: Output, selected: SelectedKind, options: Mapping[str, Any]) -> None:
    """Warn where a root that must be on all nodes or on none is installed on this node alone."""
    if options["group_size"] is not None:
        return
    for rule in selected.kind.roots:
        if rule.required_identity and rule.name in selected.stated_roots:
            output.warn(
                f"{selected.kind.name}/{rule.name} is installed on this node whatever becomes of "
                "it on others; an engine that has it on some of its nodes only can hang for 30 "
                "minutes, so give all of them --group NAME --group-size N (with one node alone: "
                "--group-size 1)"
            )
