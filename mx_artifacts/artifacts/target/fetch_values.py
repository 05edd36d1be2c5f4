"""How a fetcher fetches, what it would do, and what it did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mx_artifacts.artifacts.protocol import DEFAULT_LOCK_TIMEOUT_SECONDS, ArtifactSourceEndpoint
from mx_artifacts.core.sources import PodIdentity
from mx_artifacts.errors import MxArtifactsError
from mx_artifacts.install.base import InstallReport
from mx_artifacts.settings import (
    BUNDLE_ROOT,
    COMPRESSION,
    DURABLE,
    RESIDENT_BUDGET,
    STATE_DIR,
    TOPOLOGY,
    TOPOLOGY_LEVELS,
    WORKER_STREAM_PORT,
)


@dataclass(frozen=True)
class FetcherSettings:
    """How a fetcher fetches.

    Attributes:
        bundle_root: where processes of this node take turns; default: MX_ARTIFACT_BUNDLE_ROOT.
        timeout_seconds: budget for receiving one artifact, from all its sources.
        max_inflight_chunks: chunks that are read at once at most, each in a registered buffer;
            where nothing is waited for (one host, in memory), as many as there are cores.
        lock_timeout_seconds: how long to wait for another installer of the same root, both
            before the transfer and before the install.
        selector: in which order sources are tried; see `transfer.select.ordering`.
        topology: labels of where this node is; seeds state them. `topology_levels` are those that
            count in the selection, the broadest first.
        state_directory: where this node's quarantine is.
        durable: wait until what is installed is on the disk.
        max_bytes_per_second: taken by each transfer, and given away by seeds; None: any number.
        compression: "auto", "zstd" or "none", of each transfer; seeds compress for whoever asks,
            unless it is "none".
        seed: serve what is received, from its first bytes on and until `close`.
        host, port, stream_port, pod, resident_budget_bytes, heartbeat_interval_seconds: of seeds;
            as in `PublisherSettings`.
    """

    bundle_root: Path = field(default_factory=BUNDLE_ROOT.read)
    timeout_seconds: float = 300.0
    max_inflight_chunks: int = 4
    lock_timeout_seconds: float = DEFAULT_LOCK_TIMEOUT_SECONDS
    selector: str = "random"
    topology: Mapping[str, str] = field(default_factory=TOPOLOGY.read)
    topology_levels: Sequence[str] = field(default_factory=TOPOLOGY_LEVELS.read)
    state_directory: Path = field(default_factory=STATE_DIR.read)
    durable: bool = field(default_factory=DURABLE.read)
    max_bytes_per_second: float | None = None
    compression: str = field(default_factory=COMPRESSION.read)
    seed: bool = False
    host: str = "127.0.0.1"
    port: int = 0
    stream_port: int = field(default_factory=WORKER_STREAM_PORT.read)
    pod: PodIdentity = field(default_factory=PodIdentity)
    resident_budget_bytes: int = field(default_factory=RESIDENT_BUDGET.read)
    heartbeat_interval_seconds: float = 30.0


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
    """What was fetched from whom, and what was installed.

    `source` is the one that told what the artifact is; others may have delivered. `total_bytes`
    were transferred: none when all of it was here already. `delivered` says how many of them from
    whom, `transports` by which transport, and `left_behind` which sources failed meanwhile, and
    what by; all three by endpoint.
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
