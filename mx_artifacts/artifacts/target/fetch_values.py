"""Values of a fetch: its settings, its plan and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mx_artifacts import settings
from mx_artifacts.artifacts.protocol import DEFAULT_LOCK_TIMEOUT_SECONDS, ArtifactSourceEndpoint
from mx_artifacts.configuration import EnvironmentSettings, from_setting, nested
from mx_artifacts.errors import MxArtifactsError
from mx_artifacts.install.base import InstallReport
from mx_artifacts.worker.serving_settings import ServingSettings


@dataclass(frozen=True)
class FetcherSettings(EnvironmentSettings):
    """How a fetcher fetches.

    Attributes:
        serving: how seeds are served; of it `bundle_root`, `slots` (the reads at once),
            `max_bytes_per_second`, `compression` and `topology` hold for what is fetched too.
            Where nothing is waited for (one host, in memory), there are as many reads as cores.
        timeout_seconds: budget of a transfer, from all sources of an artifact.
        query_timeout_seconds: after which a discovery asks for no further record; None: no bound.
        lock_timeout_seconds: how long to wait for another installer of the same root, both
            before the transfer and before the install.
        selector: in which order sources are tried; see `source_order.ordering`.
        topology_levels: labels that count in the selection, the broadest first.
        state_directory: where this node's quarantine is.
        durable: wait until what is installed is on the disk.
        seed: serve what is received, from its first bytes on and until `close`.
    """

    serving: ServingSettings = nested(ServingSettings)
    timeout_seconds: float = from_setting(settings.TRANSFER_TIMEOUT)
    query_timeout_seconds: float | None = from_setting(settings.SOURCE_QUERY_TIMEOUT)
    lock_timeout_seconds: float = DEFAULT_LOCK_TIMEOUT_SECONDS
    selector: str = from_setting(settings.SOURCE_SELECTOR)
    topology_levels: tuple[str, ...] = from_setting(settings.TOPOLOGY_LEVELS)
    state_directory: Path = from_setting(settings.STATE_DIR)
    durable: bool = from_setting(settings.DURABLE)
    seed: bool = False


@dataclass(frozen=True)
class FetchPlan:
    """What a fetch would do: the sources in the order in which they would be tried.

    `already` is set when the first source's artifact is installed as it was, so that nothing
    would be transferred; it is the report of an install that changes nothing.
    """

    sources: tuple[ArtifactSourceEndpoint, ...]
    already: InstallReport | None


@dataclass(frozen=True)
class FetchResult:
    """What was fetched from which sources, and what was installed.

    `source` is the source that delivered the tables of the artifact; other sources may have
    delivered bytes. `total_bytes` were transferred: 0 if everything was installed already. By
    endpoint, `delivered` says how many bytes each source delivered, `transports` by which
    transport, and `left_behind` which sources failed, with the error.
    """

    kind: str
    source: ArtifactSourceEndpoint
    total_bytes: int
    transfer_seconds: float
    install_seconds: float
    report: InstallReport
    delivered: Mapping[str, int] = field(default_factory=dict)
    left_behind: Mapping[str, MxArtifactsError] = field(default_factory=dict)
    transports: Mapping[str, str] = field(default_factory=dict)
