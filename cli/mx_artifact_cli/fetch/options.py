"""The options of `fetch-and-install`, and the requests to the library that they describe."""

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
    """The sources that a fetch may use."""

    wait: float | None = option(
        parsed_option(
            "--wait",
            parse_wait,
            "How long to wait, such as 60s, if there is no source yet, or if the last source was "
            "lost; 0: do not wait.",
        )
    )
    allow_other_root: bool = option(
        click.option(
            "--allow-other-root",
            is_flag=True,
            help="Continue if the source has another cache root and the cache cannot be adapted to "
            "the root of this node.",
        )
    )
    artifact_id: str | None = option(
        parsed_option("--artifact-id", parse_artifact_id, "Fetch only this artifact.")
    )
    worker_rank: int | None = option(
        shared.worker_rank_option("Use only sources with this worker rank.")
    )
    node_rank: int | None = option(shared.node_rank_option("Use only sources with this node rank."))
    accelerator: str | None = option(shared.accelerator_option)


@dataclass(frozen=True)
class FetchOptions(KindsOptions):
    """What `fetch-and-install` is asked for."""

    kind_names: tuple[str, ...] = option(shared.kind_option("every kind that a source serves"))
    sources: SourceOptions = nested(SourceOptions)
    dry_run: bool = option(
        click.option(
            "--dry-run",
            is_flag=True,
            help="Say what the command would do. Do not fetch or change anything.",
        )
    )
    replace: bool = option(
        click.option(
            "--replace",
            is_flag=True,
            help="Replace existing entries of the roots.  [default: keep them]",
        )
    )
    follow: bool = option(
        click.option(
            "--follow",
            is_flag=True,
            help="Continue after the install: fetch and install new artifacts of sources.",
        )
    )
    seed: bool = option(
        click.option(
            "--seed",
            is_flag=True,
            help="Serve what is fetched to other targets, already during the fetch, and continue "
            "to serve "
            "it.",
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
            help="Wait until the installed files are on the disk, as with MX_ARTIFACT_DURABLE=1.",
        )
    )

    def check(self) -> None:
        """Refuse options that contradict each other.

        Raises:
            ConfigurationError: two options contradict each other; the message names them.
        """
        if self.seed and self.dry_run:
            raise ConfigurationError(
                "--seed cannot be used with --dry-run, because a dry run fetches nothing to serve",
                hint="leave out one of them",
            )
        stray = [flag for name, flag in _ADDRESSES.items() if name in self.flags.given]
        if stray and not self.seed:
            raise ConfigurationError(
                f"{' and '.join(stray)} can be used only with --seed, because without --seed "
                "nothing is served",
                hint=f"add --seed, or leave out {' and '.join(stray)}",
            )
        self.group.check()
        if self.follow:
            self._check_followable()

    def _check_followable(self) -> None:
        for flag, stated, reason in (
            ("--dry-run", self.dry_run, "because a dry run installs nothing"),
            (
                "--group",
                self.group.group,
                "because the members of a group agree on one install only",
            ),
            (
                "--artifact-id",
                self.sources.artifact_id,
                "because only one artifact would be fetched",
            ),
        ):
            if stated:
                raise ConfigurationError(
                    f"--follow cannot be used with {flag}, {reason}", hint="leave out one of them"
                )

    def follow_settings(self) -> FollowSettings:
        """Return how often --follow checks the sources."""
        from mx_artifacts.workflows.follow_settings import FollowSettings

        return FollowSettings.from_environment(flags=self.flags)

    def request(self, selected: Sequence[SelectedKind]) -> FetchKindsRequest:
        """Return the request to the library.

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
