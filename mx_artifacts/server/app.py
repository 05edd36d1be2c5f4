"""The central server: one process and one event loop; this module connects all parts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

import grpc.aio

from mx_artifacts import settings
from mx_artifacts.configuration import EnvironmentSettings, from_setting, from_settings
from mx_artifacts.core.groups import PRESENCE_SECONDS
from mx_artifacts.errors import BackendUnavailableError
from mx_artifacts.metadata.base import MetadataBackend
from mx_artifacts.metadata.registry import backend_url, create_backend
from mx_artifacts.node.network import is_loopback
from mx_artifacts.observability.catalogue import ServerStarted
from mx_artifacts.observability.events import EventSink, ignore_events
from mx_artifacts.runtime.clock import SYSTEM_CLOCK, Clock
from mx_artifacts.server.groups import GroupService
from mx_artifacts.server.health import (
    PING_INTERVAL_SECONDS,
    BackendMonitor,
    add_health_services,
)
from mx_artifacts.server.p2p_service import P2pService
from mx_artifacts.server.reaper import Reaper, ReaperTimes
from mx_artifacts.wire.channel import MESSAGE_OPTIONS
from mx_artifacts.wire.gen.model_express import p2p_pb2_grpc
from mx_artifacts.wire.gen.mx_artifacts.v1 import group_pb2_grpc
from mx_artifacts.wire.listen import bind, join_address

logger = logging.getLogger(__name__)

STOP_GRACE_SECONDS = 5.0
"""How long calls in flight may take once the server stops; none takes longer than its backend."""


@dataclass(frozen=True)
class ServerConfig(EnvironmentSettings):
    """What `mx-artifact serve` needs to know."""

    host: str = "127.0.0.1"
    port: int = 8001
    """0 takes a free one."""
    backend_url: str = from_settings(backend_url, settings.METADATA_BACKEND.default_here)
    heartbeat_timeout_seconds: float = from_setting(settings.HEARTBEAT_TIMEOUT)
    gc_timeout_seconds: float = from_setting(settings.GC_TIMEOUT)
    reaper_scan_interval_seconds: float = from_setting(settings.REAPER_SCAN_INTERVAL)
    group_presence_seconds: float = PRESENCE_SECONDS


async def serve(
    config: ServerConfig,
    *,
    on_ready: Callable[[str], None],
    stop: asyncio.Event,
    clock: Clock = SYSTEM_CLOCK,
    events: EventSink = ignore_events,
) -> None:
    """Serve until `stop` is set; then finish the calls in flight and free everything.

    `on_ready` is called once, with host:port as bound, when calls are answered. A metadata backend
    that is down does not keep the server from starting: calls answer UNAVAILABLE until it is up.

    Raises:
        ConfigurationError: the backend URL makes no sense, or the address cannot be bound.
    """
    backend = create_backend(config.backend_url)
    try:
        await _serve(config, backend, on_ready, stop, clock, events)
    finally:
        await backend.close()


async def _serve(
    config: ServerConfig,
    backend: MetadataBackend,
    on_ready: Callable[[str], None],
    stop: asyncio.Event,
    clock: Clock,
    events: EventSink,
) -> None:
    monitor = BackendMonitor(backend, events)
    # Without so_reuseport 0 a second server on the port would silently take half of the calls.
    server = grpc.aio.server(options=(*MESSAGE_OPTIONS, ("grpc.so_reuseport", 0)))
    service = P2pService(backend.records, clock, config.heartbeat_timeout_seconds, events)
    p2p_pb2_grpc.add_P2pServiceServicer_to_server(service, server)  # type: ignore[no-untyped-call]
    groups = GroupService(backend.ballots, clock, config.group_presence_seconds)
    group_pb2_grpc.add_GroupServiceServicer_to_server(groups, server)  # type: ignore[no-untyped-call]
    add_health_services(server, monitor, clock)
    address = join_address(config.host, bind(server, config.host, config.port))
    await _start_backend(backend)
    await monitor.check()
    await server.start()
    if not is_loopback(config.host):
        logger.warning(
            "%s is open to everyone who can reach it: there is no authentication", address
        )
    kept = backend.properties
    events(ServerStarted(address, kept.name, kept.survives_restart, kept.shared))
    on_ready(address)
    times = ReaperTimes(
        config.heartbeat_timeout_seconds,
        config.gc_timeout_seconds,
        config.reaper_scan_interval_seconds,
    )
    tasks = [
        asyncio.create_task(Reaper(backend.records, clock, times, events).run(stop)),
        asyncio.create_task(monitor.run(stop, PING_INTERVAL_SECONDS)),
    ]
    try:
        # Both end with `stop`; one that ends before has a bug, which must end the server.
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await monitor.servicer.enter_graceful_shutdown()
        await server.stop(STOP_GRACE_SECONDS)
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result


async def _start_backend(backend: MetadataBackend) -> None:
    try:
        await backend.start()
    except BackendUnavailableError as error:
        logger.warning("starting without the metadata backend: %s; %s", error, error.hint())
