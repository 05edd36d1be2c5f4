"""The server in a source's process: one port for its services; it also expires their leases."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import grpc

from mx_artifacts.errors import ConfigurationError, TransportError
from mx_artifacts.node.network import is_own_address
from mx_artifacts.observability.catalogue import WorkerPortChanged
from mx_artifacts.observability.events import EventSink, ignore_events
from mx_artifacts.transport.base import Transport
from mx_artifacts.wire.listen import ListenSettings, bind, is_in_use, join_address
from mx_artifacts.worker.base import ServedService
from mx_artifacts.worker.call_limits import CallLimits
from mx_artifacts.worker.serving_settings import ServingSettings

logger = logging.getLogger(__name__)

HALF_LOAD_READERS = 4
"""Targets at once with which a source calls itself half loaded: few enough for a single one to
show, and enough for dozens to differ."""
_SPARE_THREADS = 16
"""For calls that never wait: releases, renewals, tables. A synchronous gRPC server gives every call
a thread for as long as it lasts, so those that last long are counted and bounded; with these on
top a release never queues behind them. Threads are made on demand, so a quiet source has few."""
_MAX_WAITING_CALLS = 1024
"""Maximum number of calls that wait for a thread; gRPC refuses more at once."""
DEFAULT_GRACE_SECONDS = 5.0
"""Enough for the chunks under way; an orderly end should not take longer than a pod's (30 s)."""
_EXPIRE_INTERVAL_SECONDS = 1.0
_DRAIN_POLL_SECONDS = 0.05

_SERVER_OPTIONS = (
    ("grpc.so_reuseport", 0),  # else two workers would share a port, and their callers
    # A target that vanished without closing its connection (its node died) is noticed in 15 s.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    # A connection that does not speak HTTP/2, or asks for nothing, is closed.
    ("grpc.server_handshake_timeout_ms", 5_000),
    ("grpc.max_connection_idle_ms", 300_000),
)


class WorkerServer:
    """Serves `services` on one port: `start`, announce what they serve, `stop`.

    All methods may be called from any thread.
    """

    def __init__(
        self,
        transport: Transport,
        settings: ServingSettings,
        services: Sequence[ServedService],
        *,
        events: EventSink = ignore_events,
    ) -> None:
        """Bind nothing yet.

        Events: worker.port_changed (wanted_port, port).

        Args:
            transport: the data plane, which listens as the server does.
            settings: `host` is what targets connect to; `listen`, or without it `host`,
                is bound.
            services: the server's from here on, which closes them when it stops.
        """
        self._transport = transport
        self._settings = settings
        self._services = services
        self._events = events
        self._port = 0
        self._stopping = threading.Event()
        max_calls = sum(service.max_waiting_calls for service in services) + _SPARE_THREADS
        self._threads = ThreadPoolExecutor(max_calls, thread_name_prefix="mx-worker")
        self._call_limits = CallLimits(max_calls, is_own_address)
        self._server = grpc.server(
            self._threads,
            interceptors=(self._call_limits,),
            options=_SERVER_OPTIONS,
            maximum_concurrent_rpcs=max_calls + _MAX_WAITING_CALLS,
        )
        for service in services:
            service.add_to(self._server)
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

    def load(self) -> float:
        """Return how busy the worker is, from 0 (idle) to 1 (full).

        Readers share its link: each reader leaves less for the next.
        """
        if any(service.is_draining for service in self._services):
            return 1.0
        readers = sum(service.count_readers() for service in self._services)
        return readers / (readers + HALF_LOAD_READERS)

    def is_healthy(self) -> bool:
        """Return whether targets may come: it serves, and its data plane answers."""
        is_draining = any(service.is_draining for service in self._services)
        if is_draining or not self._expirer.is_alive():
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
        for service in self._services:
            service.drain()
        waits = int(grace_seconds / _DRAIN_POLL_SECONDS)
        while self._count_leases() and waits > 0 and not self._stopping.wait(_DRAIN_POLL_SECONDS):
            waits -= 1
        self._stopping.set()
        stopped = self._server.stop(grace=None)
        for service in self._services:
            service.close()
        stopped.wait()
        self._threads.shutdown()
        if self._expirer.is_alive():
            self._expirer.join()

    def _count_leases(self) -> int:
        return sum(service.count_leases() for service in self._services)

    def _expire(self) -> None:
        while not self._stopping.wait(_EXPIRE_INTERVAL_SECONDS):
            if late := self._call_limits.expire():
                logger.warning("%d calls took too long and were ended", late)
            count = sum(service.expire_leases() for service in self._services)
            if count:
                logger.warning("%d leases were never released; their memory was freed", count)

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
            "port %d is in use, so this source uses port %d; to choose another port, use --port "
            "(MX_WORKER_GRPC_PORT)",
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
