"""The options of `publish`, and the requests to the library that they describe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from mx_artifact_cli import options as shared
from mx_artifact_cli.option_fields import option, settings_flags
from mx_artifact_cli.option_groups import KindsOptions
from mx_artifact_cli.options import parsed_option, setting_option
from mx_artifact_cli.selection import identify
from mx_artifacts import parsing, settings
from mx_artifacts.configuration import SettingFlags
from mx_artifacts.errors import ConfigurationError

if TYPE_CHECKING:
    from mx_artifacts.artifacts.source.publisher_settings import PublisherSettings
    from mx_artifacts.artifacts.source.readiness import ReadinessSettings
    from mx_artifacts.identity.identify import ProbedIdentity
    from mx_artifacts.workflows.follow_settings import FollowSettings
    from mx_artifacts.workflows.publish_kinds import PublishKindsRequest
    from mx_artifacts.workflows.selected_kind import SelectedKind

_BOTH_PROFILES = ("strict", "reference")


@dataclass(frozen=True)
class PublishOptions(KindsOptions):
    """What `publish` is asked for."""

    kind_names: tuple[str, ...] = option(
        shared.kind_option("every kind whose root exists and is not empty")
    )
    profile: str = option(shared.profile_option(both=True))
    flags: SettingFlags = settings_flags(
        setting_option(settings.WORKER_HOST, "--host"),
        setting_option(settings.WORKER_LISTEN, "--listen"),
        setting_option(settings.WORKER_GRPC_PORT, "--port"),
        setting_option(settings.PUBLISH_TIMEOUT, "--publish-timeout"),
        setting_option(settings.READY_URL, "--ready-url"),
        setting_option(settings.READY_TIMEOUT, "--ready-timeout"),
        setting_option(settings.HEAD_ADDRESS, "--head-address"),
        setting_option(settings.FOLLOW_INTERVAL, "--follow-interval"),
        setting_option(settings.CHUNK_SIZE, "--chunk-size"),
        setting_option(settings.SLOTS, "--slots"),
        setting_option(settings.MAX_RATE, "--max-rate"),
        setting_option(settings.COMPRESSION, "--compression"),
        shared.bundle_root_option,
    )
    worker_rank: int = option(shared.worker_rank_option("Worker rank to announce.", default="0"))
    node_rank: int = option(shared.node_rank_option("Node rank to announce.", default="0"))
    accelerator: str | None = option(shared.accelerator_option)
    settle: float | None = option(
        parsed_option(
            "--settle",
            parsing.parse_duration,
            "Seal after the roots have not changed for this long [s].  [default: seal at once]",
        )
    )
    require_ranks: int | None = option(
        parsed_option(
            "--require-ranks",
            parsing.parse_integer(1, shared.UINT32_MAX),
            "Publish vLLM's compile cache only if each model has this many complete ranks; "
            "otherwise "
            "fail.",
        )
    )
    follow: bool = option(
        click.option(
            "--follow",
            is_flag=True,
            help="Wait for roots that do not exist yet, and publish roots again after they have "
            "changed.",
        )
    )

    def check(self, selected: Sequence[SelectedKind]) -> None:
        """Refuse options that contradict each other.

        Raises:
            ConfigurationError: --require-ranks is used without a kind that has ranks.
        """
        if self.require_ranks is not None and not any(each.kind.rank_sets for each in selected):
            raise ConfigurationError(
                "--require-ranks is stated, but no kind that --kind names has ranks",
                hint="leave out --require-ranks, or add a kind that has ranks (inductor)",
            )

    def settings(self) -> tuple[PublisherSettings, ReadinessSettings]:
        """Return the settings of the publisher and of waiting for the engine."""
        from mx_artifacts.artifacts.source.publisher_settings import PublisherSettings
        from mx_artifacts.artifacts.source.readiness import ReadinessSettings

        publishing = PublisherSettings.from_environment(
            flags=self.flags,
            worker_rank=self.worker_rank,
            node_rank=self.node_rank,
            device_index=self.identity.device,
        )
        return publishing, ReadinessSettings.from_environment(flags=self.flags)

    def request(self, selected: Sequence[SelectedKind]) -> PublishKindsRequest:
        """Return the request to the library."""
        from mx_artifacts.workflows.publish_kinds import PublishKindsRequest

        return PublishKindsRequest(
            tuple(selected),
            self._identities,
            accelerator=self.accelerator or "",
            require_ranks=self.require_ranks,
        )

    def follow_settings(self) -> FollowSettings:
        """Return when --follow checks the roots and seals them."""
        from mx_artifacts.workflows.follow_settings import FollowSettings

        return FollowSettings.from_environment(flags=self.flags, settle_seconds=self.settle or 0.0)

    def _identities(self, selected: SelectedKind) -> list[ProbedIdentity]:
        profiles = _BOTH_PROFILES if self.profile == "both" else (self.profile,)
        return [identify(selected, self.model, self.identity, each) for each in profiles]
