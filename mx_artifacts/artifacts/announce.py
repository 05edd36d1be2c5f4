"""Announce what is served at the central server, and keep the record alive."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mx_artifacts.client.central import CentralClient
from mx_artifacts.core.identity import SourceIdentity, compute_mx_source_id
from mx_artifacts.core.sources import PodIdentity, WorkerRecord
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.worker.heartbeat import Heartbeat, always


def announcement(
    client: CentralClient,
    identity: SourceIdentity,
    record: WorkerRecord,
    worker_id: str,
    *,
    pod: PodIdentity,
    interval_seconds: float,
    is_healthy: Callable[[], bool],
    is_ready: Callable[[], bool] = always,
) -> Heartbeat:
    """Return what announces `record` under `identity` once it is started, until it is stopped."""
    return Heartbeat(
        client,
        publish=partial(_publish, client, identity, record, worker_id, pod),
        worker_id=worker_id,
        worker_rank=record.worker_rank,
        interval_seconds=interval_seconds,
        healthy=is_healthy,
        ready=is_ready,
    )


def _publish(
    client: CentralClient,
    identity: SourceIdentity,
    record: WorkerRecord,
    worker_id: str,
    pod: PodIdentity,
) -> str:
    expected = compute_mx_source_id(identity)
    given = client.publish(identity, record, worker_id, pod)
    if given != expected:
        raise ConfigurationError(
            f"the central server computes source id {given}, this node {expected}",
            hint="upgrade the older side, or use a model name without non-ASCII characters",
        )
    return given
