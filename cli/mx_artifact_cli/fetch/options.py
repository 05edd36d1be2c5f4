"""The options of `fetch-and-install`, and what they ask the library for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import click

from mx_artifact_cli import options as shared
from mx_artifact_cli.fetch.group_options import GroupOptions
from mx_artifact_cli.option_fields import nested, option, settings_flags
from mx_artifact_cli.option_groups import KindsOptions
from mx_artifact_cli.options import parsed_option, setting_option
from mx_artifact_cli.selection import identify
from mx_artifacts import settings
from mx_artifacts.configuration import SettingFlags
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.parsing import parse_artifact_id, parse_wait

if TYPE_CHECKING:
    from mx_artifacts.workflows.fetch_kinds import FetchKindsRequest
    from mx_artifacts.workflows.follow_settings import FollowSettings
    from mx_artifacts.workflows.selected_kind import SelectedKind


@dataclass(frozen=True)
class SourceOptions:
    """Which sources will do."""

    wait: float | None = option(
        parsed_option(
            "--wait",
            parse_wait,
            "How long to wait for a source that is not there yet, or was lost, such as 60s; 0: "
            "not at all.",
        )
    )
    allow_other_root: bool = option(
        click.option(
            "--allow-other-root",
            is_flag=True,
            help="Go on where the source's cache root differs and the cache cannot be adapted to "
            "this one.",
        )
    )
    artifact_id: str | None = option(
        parsed_option("--artifact-id", parse_artifact_id, "Take this artifact only.")
    )
    worker_rank: int | None = option(
        shared.worker_rank_option("Take sources of this worker rank only.")
    )
    node_rank: int | None = option(shared.node_rank_option("Take sources of this node rank only."))
    accelerator: str | None = option(shared.accelerator_option)


@dataclass(frozen=True)
class FetchOptions(KindsOptions):
    """What `fetch-and-install` is asked for."""

    kind_names: tuple[str, ...] = option(shared.kind_option("those that a source serves"))
    sources: SourceOptions = nested(SourceOptions)
    dry_run: bool = option(
        click.option(
            "--dry-run", is_flag=True, help="Say what would happen; fetch and change nothing."
        )
    )
    replace: bool = option(
        click.option(
            "--replace",
            is_flag=True,
            help="Replace entries that the roots already hold; default: keep.",
        )
    )
    follow: bool = option(
        click.option(
            "--follow",
            is_flag=True,
            help="Stay after the install, and fetch and install what sources have new.",
        )
    )
    seed: bool = option(
        click.option(
            "--seed",
            is_flag=True,
            help="Serve what is fetched to others, from its first bytes on; stay to do so.",
        )
    )
    group: GroupOptions = nested(GroupOptions)
    flags: SettingFlags = settings_flags(
        setting_option(settings.FOLLOW_INTERVAL, "--follow-interval"),
        setting_option(settings.WORKER_HOST, "--host"),
        setting_option(settings.WORKER_LISTEN, "--listen"),
        setting_option(settings.WORKER_GRPC_PORT, "--port"),
        setting_option(settings.TRANSFER_TIMEOUT, "--timeout"),
        setting_option(settings.MAX_RATE, "--max-rate"),
        setting_option(settings.COMPRESSION, "--compression"),
        shared.bundle_root_option,
    )
    lock_timeout: float = option(shared.lock_timeout_option)
    durable: bool = option(
        click.option(
            "--durable",
            is_flag=True,
            help="Wait until what is installed is on the disk, as with MX_ARTIFACT_DURABLE=1.",
        )
    )

    def check(self) -> None:
        """Refuse options that make no sense together.

        Raises:
            ConfigurationError: naming them.
        """
        if self.seed and self.dry_run:
            raise ConfigurationError(
                "--seed does not go with --dry-run, which fetches nothing to serve"
            )
        stray = [flag for name, flag in _ADDRESSES.items() if name in self.flags.given]
        if stray and not self.seed:
            raise ConfigurationError(
                f"{' and '.join(stray)} without --seed: nothing is served that could be reached "
                "there",
                hint="add --seed, or leave it out",
            )
        self.group.check()
        if self.follow:
            self._check_followable()

    def _check_followable(self) -> None:
        for flag, stated, reason in (
            ("--dry-run", self.dry_run, "which installs nothing that could be followed"),
            (
                "--group",
                self.group.group,
                "whose members agree on one install, and would take the next at different times",
            ),
            ("--artifact-id", self.sources.artifact_id, "which leaves nothing new to take"),
        ):
            if stated:
                raise ConfigurationError(f"--follow does not go with {flag}, {reason}")

    def follow_settings(self) -> FollowSettings:
        """Return how often --follow looks at the sources."""
        from mx_artifacts.workflows.follow_settings import FollowSettings

        return FollowSettings.from_environment(flags=self.flags)

    def request(self, selected: Sequence[SelectedKind]) -> FetchKindsRequest:
        """Return what the library is asked for.

        Raises:
            ConfigurationError: a group cannot agree on these kinds.
        """
        from mx_artifacts.artifacts.target.suitability import SourceWanted
        from mx_artifacts.workflows.fetch_kinds import FetchKindsRequest

        sources = self.sources
        return FetchKindsRequest(
            tuple(selected),
            partial(identify, model=self.model, stated=self.identity, profile=self.profile),
            wanted=SourceWanted(
                worker_rank=sources.worker_rank,
                node_rank=sources.node_rank,
                artifact_id=sources.artifact_id or "",
                accelerator=sources.accelerator or "",
                wait_seconds=sources.wait or 0.0,
                allow_other_root=sources.allow_other_root,
            ),
            replace=self.replace,
            group=self.group.wanted(node_rank=sources.node_rank, worker_rank=sources.worker_rank),
            skip_absent=self.takes_all,
        )


_ADDRESSES = {
    settings.WORKER_HOST.name: "--host",
    settings.WORKER_LISTEN.name: "--listen",
    settings.WORKER_GRPC_PORT.name: "--port",
}
