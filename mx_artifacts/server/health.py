"""Three health services: model_express.health, grpc.health.v1 and reflection."""

from __future__ import annotations

import asyncio
import logging

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from mx_artifacts.errors import BackendUnavailableError
from mx_artifacts.metadata.base import MetadataBackend
from mx_artifacts.observability.catalogue import BackendDown, BackendUp
from mx_artifacts.observability.events import EventSink, ignore_events
from mx_artifacts.runtime.clock import Clock
from mx_artifacts.version import __version__
from mx_artifacts.wire.gen.model_express import health_pb2 as mx_health_pb2
from mx_artifacts.wire.gen.model_express import health_pb2_grpc as mx_health_pb2_grpc
from mx_artifacts.wire.gen.model_express import p2p_pb2
from mx_artifacts.wire.gen.mx_artifacts.v1 import group_pb2

PING_INTERVAL_SECONDS = 2.0
"""How often the backend is asked; below the period of any usual probe."""

_P2P = p2p_pb2.DESCRIPTOR.services_by_name["P2pService"].full_name
_GROUPS = group_pb2.DESCRIPTOR.services_by_name["GroupService"].full_name
_MX_HEALTH = mx_health_pb2.DESCRIPTOR.services_by_name["HealthService"].full_name

logger = logging.getLogger(__name__)


class BackendMonitor:
    """Asks the backend whether it answers, and keeps grpc.health.v1 up to date with that."""

    def __init__(self, backend: MetadataBackend, events: EventSink = ignore_events) -> None:
        self._backend = backend
        self._events = events
        self.servicer = health.aio.HealthServicer()
        self.serving = True

    async def run(self, stop: asyncio.Event, interval_seconds: float) -> None:
        """Check now and every `interval_seconds` until `stop`."""
        while not stop.is_set():
            await self.check()
            try:
                await asyncio.wait_for(stop.wait(), interval_seconds)
            except asyncio.TimeoutError:
                continue

    async def check(self) -> None:
        """Ask once."""
        try:
            await self._backend.ping()
            serving = True
        except BackendUnavailableError as error:
            serving = False
            if self.serving:
                logger.warning("metadata backend does not answer: %s; %s", error, error.hint())
                self._events(BackendDown(error))
        if serving and not self.serving:
            logger.info("metadata backend answers again")
            self._events(BackendUp())
        self.serving = serving
        states = health_pb2.HealthCheckResponse
        for service in (health.OVERALL_HEALTH, _P2P):
            await self.servicer.set(service, states.SERVING if serving else states.NOT_SERVING)


class MxHealthService(mx_health_pb2_grpc.HealthServiceServicer):
    """HealthService of deployed clients; answers also while the backend does not."""

    def __init__(self, monitor: BackendMonitor, clock: Clock) -> None:
        self._monitor = monitor
        self._clock = clock
        self._started_at = clock.monotonic()

    async def GetHealth(
        self, request: mx_health_pb2.HealthRequest, context: grpc.aio.ServicerContext
    ) -> mx_health_pb2.HealthResponse:
        """Return version, status ("ok" or what is wrong) and uptime [s]."""
        return mx_health_pb2.HealthResponse(
            version=__version__,
            status="ok" if self._monitor.serving else "metadata backend unavailable",
            uptime=int(self._clock.monotonic() - self._started_at),
        )


def add_health_services(server: grpc.aio.Server, monitor: BackendMonitor, clock: Clock) -> None:
    """Add both health services, and reflection over all services of `server`."""
    mx_health_pb2_grpc.add_HealthServiceServicer_to_server(  # type: ignore[no-untyped-call]
        MxHealthService(monitor, clock), server
    )
    health_pb2_grpc.add_HealthServicer_to_server(monitor.servicer, server)
    names = (_P2P, _GROUPS, _MX_HEALTH, health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server)
