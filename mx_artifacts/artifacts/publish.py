"""Announce a sealed artifact and keep it served and alive until it is stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from mx_artifacts.artifacts.announce import announcement
from mx_artifacts.artifacts.protocol import ArtifactBundle
from mx_artifacts.client.central import CentralClient
from mx_artifacts.core.identity import SourceIdentity, compute_mx_source_id
from mx_artifacts.core.sources import PodIdentity, SourceStatus, WorkerRecord
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.transport.base import Transport
from mx_artifacts.worker.heartbeat import Heartbeat
from mx_artifacts.worker.server import WorkerServer


@dataclass(frozen=True)
class ServingLimits:
    """What serving one artifact may cost. Times in seconds, memory in bytes.

    An artifact that does not lie in memory is served through `slots` registered buffers of one
    chunk each.
    """

    slots: int = 4
    heartbeat_interval_seconds: float = 30.0


DEFAULT_LIMITS = ServingLimits()


@dataclass(frozen=True)
class PublishedArtifactSource:
    """An artifact that is announced and served. `stop` it, or its memory stays registered."""

    mx_source_id: str
    worker_id: str
    bundle: ArtifactBundle
    worker_server: WorkerServer
    heartbeat: Heartbeat
    also: Mapping[str, Heartbeat] = field(default_factory=dict)
    """By its source id, the heartbeat of each further identity that it is announced under."""

    @property
    def artifact_id(self) -> str:
        """SHA-256 of the manifest, 64 hex characters."""
        return self.bundle.artifact_id

    @property
    def worker_grpc_endpoint(self) -> str:
        """Where it is served, host:port."""
        return self.worker_server.endpoint

    def stop(self) -> None:
        """Mark STALE and serve no more; memory goes with the last lease. Idempotent."""
        for mx_source_id, heartbeat in {self.mx_source_id: self.heartbeat, **self.also}.items():
            heartbeat.stop()
            self.worker_server.remove_artifact(mx_source_id, self.artifact_id)


def publish_artifact_source(
    client: CentralClient,
    bundle: ArtifactBundle,
    identity: SourceIdentity,
    transport: Transport,
    worker_id: str,
    *,
    worker_server: WorkerServer,
    worker_rank: int = 0,
    node_rank: int = 0,
    accelerator: str = "",
    pod: PodIdentity | None = None,
    topology: Mapping[str, str] = MappingProxyType({}),
    limits: ServingLimits = DEFAULT_LIMITS,
    also: Sequence[SourceIdentity] = (),
) -> PublishedArtifactSource:
    """Serve `bundle` on `worker_server` (started by the caller), announce it, keep it alive.

    It is announced under `identity` and under each of `also`, from one registered memory.
    `topology` has labels of the source, such as `root_labels` makes.

    The returned source owns `bundle`; when this raises, the caller still does.
    Memory and tables are registered before the record exists, so that whoever finds the source
    can read from it at once.

    Raises:
        ConfigurationError: the identity has no model name.
        MetadataError: the central server does not answer.
        RegistrationError, IntegrityError: the bundle cannot be served.
    """
    if not all(each.model_name for each in (identity, *also)):
        raise ConfigurationError(
            "an identity without model name cannot be published", hint="give the model with --model"
        )
    mx_source_id = compute_mx_source_id(identity)
    worker_server.add_artifact(
        mx_source_id,
        bundle.artifact_id,
        bundle.manifest,
        bundle.bundles,
        slots=limits.slots,
        indexes=bundle.index_by_file(),
    )
    record = WorkerRecord(
        worker_rank=worker_rank,
        status=SourceStatus.INITIALIZING,
        agent_name=transport.agent_name,
        worker_grpc_endpoint=worker_server.endpoint,
        accelerator=accelerator,
        topology=topology,
        artifact=bundle.summary(node_rank),
    )

    heartbeats: dict[str, Heartbeat] = {}
    try:
        for each in (identity, *also):
            served_as = compute_mx_source_id(each)
            if served_as in heartbeats:
                continue
            if heartbeats:
                worker_server.add_alias(served_as, mx_source_id, bundle.artifact_id)
            heartbeats[served_as] = announcement(
                client,
                each,
                record,
                worker_id,
                pod=pod or PodIdentity(),
                interval_seconds=limits.heartbeat_interval_seconds,
                is_healthy=worker_server.is_healthy,
            )
            heartbeats[served_as].start()
    except BaseException:
        for served_as, heartbeat in heartbeats.items():
            heartbeat.stop()
            worker_server.remove_artifact(served_as, bundle.artifact_id)
        raise
    first = heartbeats.pop(mx_source_id)
    return PublishedArtifactSource(
        mx_source_id, worker_id, bundle, worker_server, first, heartbeats
    )
