"""The options of a group: an install happens on all of its nodes or on none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mx_artifact_cli.option_fields import option
from mx_artifact_cli.options import parsed_option
from mx_artifacts.core.groups import MAX_SIZE
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.parsing import parse_duration, parse_group_name, parse_integer

if TYPE_CHECKING:
    from mx_artifacts.artifacts.target.group_member import GroupWanted


@dataclass(frozen=True)
class GroupOptions:
    """The group of which this node is a member."""

    group: str | None = option(
        parsed_option(
            "--group",
            parse_group_name,
            "Install on all nodes of this group or on none. State the same NAME or NAME/RUN on "
            "all nodes.",
            metavar="NAME",
        )
    )
    group_size: int | None = option(
        parsed_option(
            "--group-size",
            parse_integer(1, MAX_SIZE),
            "Number of nodes of the group; 1: only this node.",
            metavar="N",
        )
    )
    group_member: str | None = option(
        parsed_option(
            "--group-member",
            parse_group_name,
            "Name of this node in the group.  [default: POD_NAME, else the host name; with "
            "--node-rank and --worker-rank]",
            metavar="NAME",
        )
    )
    group_timeout: float = option(
        parsed_option(
            "--group-timeout",
            parse_duration,
            "How long to wait for the other nodes after this node is ready.",
            default="10m",
        )
    )

    def check(self) -> None:
        """Check that the options of the group are complete.

        Raises:
            ConfigurationError: only one of --group and --group-size is stated.
        """
        if self.group_size != 1 and (self.group is None) != (self.group_size is None):
            raise ConfigurationError(
                "--group and --group-size must be used together",
                hint="use both, with the same values on all nodes: --group NAME --group-size N",
            )

    def wanted(self, *, node_rank: int | None, worker_rank: int | None) -> GroupWanted | None:
        """Return the stated group (of size 1 if there is only this node), or None."""
        if self.group_size is None:
            return None
        from mx_artifacts.artifacts.target.group_member import GroupWanted, member_id_here

        member = self.group_member or member_id_here(node_rank=node_rank, worker_rank=worker_rank)
        return GroupWanted(self.group or "", self.group_size, member, self.group_timeout)
