"""A source's server process side: listens, expires leases, and gives all memory back at the end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType

import grpc

from mx_artifacts.compression import NONE, encodings
from mx_artifacts.core.manifest import ArtifactManifest, validate_against
from mx_artifacts.core.member_index import MemberIndex
from mx_artifacts.errors import ConfigurationError, TransportError
from mx_artifacts.memory.buffers import Bundle
from mx_artifacts.memory.leases import LeaseTable
from mx_artifacts.observability.catalogue import WorkerPortChanged
from mx_artifacts.observability.events import EventSink, ignore_events
from mx_artifacts.runtime.clock import SYSTEM_CLOCK, Clock
from mx_artifacts.runtime.rate_limit import RateLimit
from mx_artifacts.transport.base import Transport
from mx_artifacts.wire.gen.model_express import p2p_pb2_grpc
from mx_artifacts.wire.gen.mx_artifacts.v1 import source_pb2_grpc
from mx_artifacts.wire.listen import ListenSettings, bind, is_in_use, join_address
from mx_artifacts.worker.admission import MAX_PREPARES, AdmissionControl
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
HALF_LOAD_READERS = 4
"""Targets at once with which a source calls itself half loaded: few enough for a single one to
show, and enough for dozens to differ."""
_SPARE_THREADS = 16
"""For calls that never wait: releases, renewals, tables. A synchronous gRPC server gives every call
a thread for as long as it lasts, so those that last long are counted and bounded; with these on
top a release never queues behind them. Threads are made on demand, so a quiet source has few."""
DEFAULT_GRACE_SECONDS = 5.0
"""Enough for the chunks under way; an orderly end should not take longer than a pod's (30 s)."""
_EXPIRE_INTERVAL_SECONDS = 1.0
_DRAIN_POLL_SECONDS = 0.05

Indexes = Mapping[int, MemberIndex]
NO_INDEXES: Indexes = MappingProxyType({})

_SERVER_OPTIONS = (
    ("grpc.so_reuseport", 0),  # else two workers would share a port, and their callers
    # A target that vanished without closing its connection (its node died) is noticed in 15 s.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
)


class WorkerServer:
    """Serves artifacts on one port. Order: add what is to be served, `start`, publish; `stop`.

    All methods may be called from any thread.
    """

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
        """Bind nothing yet.

        Events: worker.port_changed (wanted_port, port).

        Args:
            settings: `host` is what targets are told to connect to; `listen`, or without it `host`,
                is bound.
            lease_grace_seconds: how long a lease's memory is kept from reuse after its end. With
                the ttl this should exceed a plain peer's transfer timeout (the reference's source:
                300 s), as such peers cannot renew.
        """
        self._transport = transport
        self._settings = settings
        self._events = events
        self._port = 0
        self._catalogue = Catalogue()
        self._leases: Leases = LeaseTable(clock, settings.lease_ttl_seconds, lease_grace_seconds)
        self._stopping = threading.Event()
        self._threads = ThreadPoolExecutor(
            MAX_SESSIONS + MAX_PREPARES + _SPARE_THREADS, thread_name_prefix="mx-worker"
        )
        self._sessions = sessions = Sessions(MAX_SESSIONS, transport.names())
        prepares = AdmissionControl(RateLimit(settings.max_bytes_per_second, clock))
        self._blocks = Blocks(transport, settings.slots)
        self._service = WorkerService(
            self._catalogue,
            self._leases,
            sessions,
            prepares,
            agent_name=transport.agent_name,
            worker_rank=worker_rank,
        )
        self._server = grpc.server(self._threads, options=_SERVER_OPTIONS)
        p2p_pb2_grpc.add_WorkerServiceServicer_to_server(  # type: ignore[no-untyped-call]
            self._service, self._server
        )
        source_pb2_grpc.add_SourceServiceServicer_to_server(  # type: ignore[no-untyped-call]
            SourceService(
                self._catalogue,
                self._leases,
                sessions,
                settings.lease_ttl_seconds,
                lambda: self._service.draining,
                prepares,
                self._blocks if settings.compression != NONE and encodings() else None,
                max_bytes_per_second=settings.max_bytes_per_second,
            ),
            self._server,
        )
        self._expirer = threading.Thread(target=self._expire, name="mx-leases", daemon=True)

    @property
    def endpoint(self) -> str:
        """host:port for targets, once started."""
        return join_address(self._settings.host, self._port)

    def start(self) -> int:
        """Listen and serve; return the port.

        Raises:
            ConfigurationError: the port or address cannot be bound.
        """
        self._port = self._bind()
        self._listen_for_data()
        self._server.start()
        self._expirer.start()
        return self._port

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
            bundles: the bytes of every manifest path; the worker's from here on, which closes
                them when they are served no more.
            slots: how many chunk-sized buffers serve an artifact that does not lie in memory.
            indexes: the members of every bundle, by file index, or none.

        Raises:
            ManifestInvalidError, ArtifactIdMismatchError, ConfigurationError (served already),
            RegistrationError: `bundles` are still the caller's.
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
        """Serve an artifact from `source`, which is the worker's from here on.

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

    def load(self) -> float:
        """Return how busy it is, from 0 (idle) to 1 (full).

        Readers share its link: each that is there already leaves less to the next.
        """
        if self._service.draining:
            return 1.0
        readers = len(self._sessions) + self._leases.count_plain()
        return readers / (readers + HALF_LOAD_READERS)

    def is_healthy(self) -> bool:
        """Tell whether targets may come: it serves, and its data plane answers."""
        if self._service.draining or not self._expirer.is_alive():
            return False
        try:
            self._transport.descriptors()
        except TransportError as error:
            logger.warning("the data plane does not work: %s", error)
            return False
        return True

    def stop(self, grace_seconds: float = DEFAULT_GRACE_SECONDS) -> None:
        """Grant no more leases, wait up to `grace_seconds` for those there are, free everything.

        Returns when all memory is deregistered. Idempotent; also right before `start`.
        """
        self._service.draining = True
        waits = int(grace_seconds / _DRAIN_POLL_SECONDS)
        while len(self._leases) and waits > 0 and not self._stopping.wait(_DRAIN_POLL_SECONDS):
            waits -= 1
        self._stopping.set()
        stopped = self._server.stop(grace=None)
        for served in self._catalogue.all():
            served.source.close()  # wakes those who wait for a slot
        self._blocks.close()
        self._leases.close()
        stopped.wait()
        self._threads.shutdown()
        if self._expirer.is_alive():
            self._expirer.join()

    def _expire(self) -> None:
        while not self._stopping.wait(_EXPIRE_INTERVAL_SECONDS):
            if count := self._leases.expire():
                logger.warning("%d leases were never released; their memory is free again", count)

    def _listen_for_data(self) -> None:
        settings = self._settings
        self._transport.listen(
            settings.listen or settings.host,
            settings.device_stream_port,
            strict_port=settings.is_stream_port_required,
        )

    def _bind(self) -> int:
        settings = self._settings
        host, wanted_port = settings.listen or settings.host, settings.device_port
        try:
            return bind(self._server, host, wanted_port, _names_of(settings))
        except ConfigurationError as error:
            if settings.is_port_required or not is_in_use(error):
                raise
        port = bind(self._server, host, 0, _names_of(settings))
        logger.warning(
            "port %d is in use, so targets find this source on port %d; --port "
            "(MX_WORKER_GRPC_PORT) states another one",
            wanted_port,
            port,
        )
        self._events(WorkerPortChanged(wanted_port, port))
        return port


def _names_of(settings: ServingSettings) -> ListenSettings:
    """Return what messages call the settings of the address and the port."""
    added = f", to which device index {settings.device_index} is added"
    return ListenSettings(
        "--listen (MX_WORKER_LISTEN)",
        f"--port (MX_WORKER_GRPC_PORT{added if settings.device_index else ''})",
    )
