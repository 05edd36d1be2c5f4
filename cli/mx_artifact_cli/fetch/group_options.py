"""The options by which nodes install all or none."""

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
    """The group on whose nodes all or none install."""

    group: str | None = option(
        parsed_option(
            "--group",
            parse_group_name,
            "Install on all nodes of this group or on none; NAME or NAME/RUN, the same on all.",
            metavar="NAME",
        )
    )
    group_size: int | None = option(
        parsed_option(
            "--group-size",
            parse_integer(1, MAX_SIZE),
            "How many nodes the group has; 1: there is only this one.",
            metavar="N",
        )
    )
    group_member: str | None = option(
        parsed_option(
            "--group-member",
            parse_group_name,
            "This node's name in the group.  [default: POD_NAME, else the host's name; with "
            "--node-rank and --worker-rank]",
            metavar="NAME",
        )
    )
    group_timeout: float = option(
        parsed_option(
            "--group-timeout",
            parse_duration,
            "How long to wait, when ready, until the other nodes are.",
            default="10m",
        )
    )

    def check(self) -> None:
        """Refuse a group of which not all is said.

        Raises:
            ConfigurationError: one of --group and --group-size lacks the other.
        """
        if self.group_size != 1 and (self.group is None) != (self.group_size is None):
            raise ConfigurationError(
                "--group and --group-size belong together",
                hint="give both, the same on all nodes: --group NAME --group-size N",
            )

    def wanted(self, *, node_rank: int | None, worker_rank: int | None) -> GroupWanted | None:
        """Return the group, of size 1 where there is only this node; None where none is stated."""
        if self.group_size is None:
            return None
        from mx_artifacts.artifacts.target.group_member import GroupWanted, member_id_here

        member = self.group_member or member_id_here(node_rank=node_rank, worker_rank=worker_rank)
        return GroupWanted(self.group or "", self.group_size, member, self.group_timeout)
