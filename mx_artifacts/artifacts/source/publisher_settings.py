"""The settings of a publisher."""

from __future__ import annotations

from dataclasses import dataclass

from mx_artifacts.configuration import EnvironmentSettings, from_setting, nested
from mx_artifacts.settings import CHUNK_SIZE, PUBLISH_TIMEOUT
from mx_artifacts.worker.serving_settings import ServingSettings


@dataclass(frozen=True)
class PublisherSettings(EnvironmentSettings):
    """How a publisher publishes and serves.

    Attributes:
        serving: where it listens, what it announces, and what serving may cost.
        chunk_size_bytes: of its artifacts.
        publish_timeout_seconds: how long to wait for a central server that cannot be reached yet.
        worker_rank, node_rank: announced of what is published.
    """

    serving: ServingSettings = nested(ServingSettings)
    chunk_size_bytes: int = from_setting(CHUNK_SIZE)
    publish_timeout_seconds: float = from_setting(PUBLISH_TIMEOUT)
    worker_rank: int = 0
    node_rank: int = 0
