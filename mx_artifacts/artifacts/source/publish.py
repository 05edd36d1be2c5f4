"""Announce a sealed artifact and keep it served and alive until it is stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType

from mx_artifacts.artifacts.protocol import ArtifactBundle
from mx_artifacts.artifacts.source.announcement import Announcement
from mx_artifacts.artifacts.source.heartbeat import Heartbeat
from mx_artifacts.artifacts.transport_labels import transport_labels
from mx_artifacts.client.central import CentralClient
from mx_artifacts.core.identity import SourceIdentity, compute_mx_source_id
from mx_artifacts.core.sources import PodIdentity, SourceStatus, WorkerRecord
from mx_artifacts.errors import ConfigurationError, MxArtifactsError
from mx_artifacts.transport.base import Transport
from mx_artifacts.worker.worker_server import WorkerServer


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
    """An artifact that is announced and served. `stop` it, or its memory stays registered.

    `announced` are its announcements, under its own identity first, each with its heartbeat.
    """

    worker_id: str
    bundle: ArtifactBundle
    worker_server: WorkerServer
    announced: tuple[tuple[Announcement, Heartbeat], ...]

    @property
    def mx_source_id(self) -> str:
        """The id of its own identity."""
        return self.source_ids[0]

    @property
    def source_ids(self) -> tuple[str, ...]:
        """The ids of all identities that it is announced under."""
        return tuple(announcement.mx_source_id for announcement, _ in self.announced)

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
        for announcement, heartbeat in self.announced:
            heartbeat.stop()
            self.worker_server.remove_artifact(announcement.mx_source_id, self.artifact_id)


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
    `topology` has labels of the source: where it is, and those that `root_labels` makes.

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
        topology={**topology, **transport_labels(transport.names())},
        artifact=bundle.summary(node_rank),
    )
    announced: dict[str, tuple[Announcement, Heartbeat]] = {}
    try:
        for each in (identity, *also):
            announcement = Announcement(
                client, each, record, worker_id, pod or PodIdentity(), worker_server.rename_source
            )
            served_as = announcement.mx_source_id
            if served_as in announced:
                continue
            if announced:
                first, _ = announced[mx_source_id]  # whose id may be the server's by now
                worker_server.add_alias(served_as, first.mx_source_id, bundle.artifact_id)
            heartbeat = Heartbeat(
                announcement,
                publish=announcement.publish,
                worker_id=worker_id,
                worker_rank=worker_rank,
                interval_seconds=limits.heartbeat_interval_seconds,
                healthy=worker_server.is_healthy,
                load=worker_server.load,
            )
            announced[served_as] = announcement, heartbeat
            heartbeat.start()
    except BaseException:
        for announcement, heartbeat in announced.values():
            heartbeat.stop()
            worker_server.remove_artifact(announcement.mx_source_id, bundle.artifact_id)
        raise
    return PublishedArtifactSource(worker_id, bundle, worker_server, tuple(announced.values()))


def replace_artifact(
    source: PublishedArtifactSource, bundle: ArtifactBundle, *, slots: int, node_rank: int = 0
) -> PublishedArtifactSource:
    """Serve and announce `bundle`, another artifact, in the place of what `source` does.

    Who looks for sources finds the old one or the new. What is leased of the old one stays
    until its lease ends. `bundle` is owned here, also when this raises.

    Raises:
        MetadataError, RemoteError, RegistrationError: `source` serves on what it served.
    """
    server, source_ids = source.worker_server, source.source_ids
    try:
        server.add_artifact(
            source.mx_source_id,
            bundle.artifact_id,
            bundle.manifest,
            bundle.bundles,
            slots=slots,
            indexes=bundle.index_by_file(),
        )
    except BaseException:
        bundle.close()
        raise
    try:
        for alias in source_ids[1:]:
            server.add_alias(alias, source.mx_source_id, bundle.artifact_id)
        for announcement, _ in source.announced:
            announcement.change(bundle.summary(node_rank))
    except BaseException:
        for announcement, _ in source.announced:
            with suppress(MxArtifactsError):  # then the next beat does it
                announcement.change(source.bundle.summary(node_rank))
        _remove(server, source_ids, bundle)
        raise
    _remove(server, source_ids, source.bundle)
    return replace(source, bundle=bundle)


def _remove(server: WorkerServer, source_ids: Sequence[str], bundle: ArtifactBundle) -> None:
    for mx_source_id in source_ids:
        server.remove_artifact(mx_source_id, bundle.artifact_id)
