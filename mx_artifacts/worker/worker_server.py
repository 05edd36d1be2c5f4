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
from mx_artifacts.wire.listen import bind, is_in_use, join_address
from mx_artifacts.worker.admission import MAX_PREPARES, AdmissionControl
from mx_artifacts.worker.blocks import Blocks
from mx_artifacts.worker.catalogue import Catalogue, ServedArtifact
from mx_artifacts.worker.chunk_source import ChunkSource, open_chunk_source
from mx_artifacts.worker.extension_service import SourceService
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
        *,
        host: str,
        port: int,
        strict_port: bool = False,
        stream_port: int = 0,
        worker_rank: int = 0,
        lease_ttl_seconds: float = 30.0,
        lease_grace_seconds: float = 270.0,
        max_bytes_per_second: float | None = None,
        compression: str = NONE,
        block_slots: int = 4,
        events: EventSink = ignore_events,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Bind nothing yet.

        Events: worker.port_changed (wanted_port, port).

        Args:
            host: where it listens, and what targets are told to connect to.
            stream_port: of the stream transport, likewise.
            port: 0 takes any free one. Without `strict_port` it is a wish: when taken, any free
                one is used.
            lease_ttl_seconds: how long a lease lasts without a renewal.
            lease_grace_seconds: how long its memory is kept from reuse after that. With the ttl
                this should exceed a plain peer's transfer timeout (the reference's source: 300 s),
                as such peers cannot renew.
            max_bytes_per_second: leased to all targets together, by chunks then; None: any number.
            compression: "none", or else blocks are compressed for targets that ask for it, where
                the library is installed: `block_slots` at once, of 4 MiB each.
        """
        self._transport = transport
        self._host = host
        self._wanted_port = port
        self._strict_port = strict_port
        self._stream_port = stream_port
        self._events = events
        self._port = 0
        self._catalogue = Catalogue()
        self._leases: Leases = LeaseTable(clock, lease_ttl_seconds, lease_grace_seconds)
        self._stopping = threading.Event()
        self._threads = ThreadPoolExecutor(
            MAX_SESSIONS + MAX_PREPARES + _SPARE_THREADS, thread_name_prefix="mx-worker"
        )
        self._sessions = sessions = Sessions(MAX_SESSIONS, transport.names())
        prepares = AdmissionControl(RateLimit(max_bytes_per_second, clock))
        self._blocks = Blocks(transport, block_slots)
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
                lease_ttl_seconds,
                lambda: self._service.draining,
                prepares,
                self._blocks if compression != NONE and encodings() else None,
                max_bytes_per_second=max_bytes_per_second,
            ),
            self._server,
        )
        self._expirer = threading.Thread(target=self._expire, name="mx-leases", daemon=True)

    @property
    def endpoint(self) -> str:
        """host:port for targets, once started."""
        return join_address(self._host, self._port)

    def start(self) -> int:
        """Listen and serve; return the port.

        Raises:
            ConfigurationError: the port or address cannot be bound.
        """
        self._port = self._bind()
        self._transport.listen(self._host, self._stream_port, strict_port=self._strict_port)
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

    def _bind(self) -> int:
        try:
            return bind(self._server, self._host, self._wanted_port)
        except ConfigurationError as error:
            if self._strict_port or not is_in_use(error):
                raise
        port = bind(self._server, self._host, 0)
        logger.warning(
            "port %d is in use, so targets find this source on port %d", self._wanted_port, port
        )
        self._events(WorkerPortChanged(self._wanted_port, port))
        return port
