"""Serves artifacts: the served artifacts, their leases, and two gRPC services for them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType

import grpc

from mx_artifacts.compression import NONE, encodings
from mx_artifacts.core.manifest import ArtifactManifest, validate_against
from mx_artifacts.core.member_index import MemberIndex
from mx_artifacts.memory.buffers import Bundle
from mx_artifacts.memory.leases import LeaseTable
from mx_artifacts.observability.catalogue import ArtifactDamaged
from mx_artifacts.observability.events import EventSink, ignore_events
from mx_artifacts.runtime.clock import SYSTEM_CLOCK, Clock
from mx_artifacts.runtime.rate_limit import RateLimit
from mx_artifacts.transport.base import Transport
from mx_artifacts.wire.gen.model_express import p2p_pb2_grpc
from mx_artifacts.wire.gen.mx_artifacts.v1 import source_pb2_grpc
from mx_artifacts.worker.admission import MAX_PREPARES, AdmissionControl
from mx_artifacts.worker.base import ServedService
from mx_artifacts.worker.blocks import Blocks
from mx_artifacts.worker.catalogue import Catalogue, ServedArtifact
from mx_artifacts.worker.chunk_source import ChunkSource, open_chunk_source
from mx_artifacts.worker.extension_service import SourceService
from mx_artifacts.worker.serving_settings import ServingSettings
from mx_artifacts.worker.sessions import Sessions
from mx_artifacts.worker.worker_service import Leases, WorkerService

logger = logging.getLogger(__name__)

MAX_SESSIONS = 256
"""Attached targets; more are served by the plain protocol."""

Indexes = Mapping[int, MemberIndex]
NO_INDEXES: Indexes = MappingProxyType({})


class ArtifactService(ServedService):
    """Serves artifacts from memory that is registered with `transport`. Any thread."""

    max_waiting_calls = MAX_SESSIONS + MAX_PREPARES

    def __init__(
        self,
        transport: Transport,
        settings: ServingSettings,
        *,
        worker_rank: int = 0,
        lease_grace_seconds: float = 270.0,
        events: EventSink = ignore_events,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Serve nothing yet.

        Events: worker.artifact_damaged.

        Args:
            lease_grace_seconds: how long a lease's memory is kept from reuse after its end. With
                the ttl this should exceed a plain peer's transfer timeout (the reference's source:
                300 s), as such peers cannot renew.
        """
        self._transport = transport
        self._events = events
        self._catalogue = Catalogue()
        self.leases: Leases = LeaseTable(clock, settings.lease_ttl_seconds, lease_grace_seconds)
        self._sessions = Sessions(MAX_SESSIONS, transport.names())
        prepares = AdmissionControl(RateLimit(settings.max_bytes_per_second, clock), clock)
        self._blocks = Blocks(transport, settings.slots)
        self._worker_service = WorkerService(
            self._catalogue,
            self.leases,
            self._sessions,
            prepares,
            agent_name=transport.agent_name,
            worker_rank=worker_rank,
        )
        self._source_service = SourceService(
            self._catalogue,
            self.leases,
            self._sessions,
            settings.lease_ttl_seconds,
            lambda: self.is_draining,
            prepares,
            self._blocks if settings.compression != NONE and encodings() else None,
            self._remove_damaged,
            max_bytes_per_second=settings.max_bytes_per_second,
        )

    # --- what is served --------------------------------------------------------------------------

    def add_artifact(
        self,
        mx_source_id: str,
        artifact_id: str,
        manifest: ArtifactManifest,
        bundles: Mapping[str, Bundle],
        *,
        slots: int,
        indexes: Indexes = NO_INDEXES,
    ) -> None:
        """Register an artifact's memory, then serve it.

        Args:
            bundles: the bytes of every manifest path. From now on the service owns them, and closes
                them when they are no longer served.
            slots: number of chunk-sized buffers that serve an artifact that is not in memory.
            indexes: the members of every bundle, by file index, or none.

        Raises:
            ManifestInvalidError, ArtifactIdMismatchError, ConfigurationError (served already),
            RegistrationError: the caller still owns `bundles`.
        """
        validate_against(manifest, artifact_id)
        source = open_chunk_source(self._transport, manifest, bundles, slots=slots)
        try:
            self.add_source(mx_source_id, artifact_id, manifest, source, indexes)
        except BaseException:
            source.close()
            raise

    def add_source(
        self,
        mx_source_id: str,
        artifact_id: str,
        manifest: ArtifactManifest,
        source: ChunkSource,
        indexes: Indexes = NO_INDEXES,
    ) -> None:
        """Serve an artifact from `source`, which is the service's from here on.

        Raises:
            ConfigurationError: it is served already; `source` is still the caller's.
        """
        served = ServedArtifact(mx_source_id, artifact_id, manifest, source, indexes)
        self._catalogue.add(served)
        _ = served.encoded_indexes  # made before a target waits for them

    def add_alias(self, alias: str, mx_source_id: str, artifact_id: str) -> None:
        """Serve an artifact that is served already under a second source id, from one memory.

        Raises:
            RecordNotFoundError, ConfigurationError: it is not served, or under `alias` already.
        """
        self._catalogue.add_alias(alias, mx_source_id, artifact_id)

    def rename_source(self, mx_source_id: str, new_id: str) -> None:
        """Serve under `new_id` what is served under `mx_source_id`, from the same memory.

        For a source whose id the central server computes otherwise: targets ask by that one.
        """
        self._catalogue.rename_source(mx_source_id, new_id)

    def remove_artifact(self, mx_source_id: str, artifact_id: str) -> None:
        """Serve an artifact no longer under this source id. Idempotent.

        Its memory goes when it is served under no id any more and its last lease ends.
        """
        served = self._catalogue.remove(mx_source_id, artifact_id)
        if served is not None:
            served.source.close()

    def is_intact(self, mx_source_id: str, artifact_id: str) -> bool:
        """Return whether no target has shown that what is served under these ids is damaged."""
        return not self._catalogue.is_damaged(mx_source_id, artifact_id)

    def _remove_damaged(self, served: ServedArtifact, damage: str) -> None:
        logger.error(
            "artifact %s is damaged in this process's memory or file (%s) and is no longer "
            "served; publish it again, and check the memory and the disk of this node",
            served.artifact_id,
            damage,
        )
        self._catalogue.remove_damaged(served)
        served.source.close()
        self._events(ArtifactDamaged(served.artifact_id, damage))

    # --- what the worker server asks -------------------------------------------------------------

    @property
    def is_draining(self) -> bool:
        """Whether it grants no lease any more."""
        return self._worker_service.draining

    def add_to(self, server: grpc.Server) -> None:
        """Add the reference's WorkerService and our SourceService."""
        p2p_pb2_grpc.add_WorkerServiceServicer_to_server(  # type: ignore[no-untyped-call]
            self._worker_service, server
        )
        source_pb2_grpc.add_SourceServiceServicer_to_server(  # type: ignore[no-untyped-call]
            self._source_service, server
        )

    def count_readers(self) -> int:
        """Return how many targets are attached, or have a lease without that."""
        return len(self._sessions) + self.leases.count_plain()

    def count_leases(self) -> int:
        """Return how many leases there are."""
        return len(self.leases)

    def expire_leases(self) -> int:
        """End leases that were not renewed; return how many they were."""
        return self.leases.expire()

    def drain(self) -> None:
        """Grant no more leases. Idempotent."""
        self._worker_service.draining = True

    def close(self) -> None:
        """Free the memory of everything that is served. Idempotent."""
        for served in self._catalogue.all():
            served.source.close()  # wakes those who wait for a slot
        self._blocks.close()
        self.leases.close()
