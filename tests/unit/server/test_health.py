"""What the server says of its backend, and to whom: changes are told once."""

from __future__ import annotations

import asyncio
from typing import cast

import grpc
import pytest
from grpc_health.v1 import health_pb2

from mx_artifacts.errors import BackendUnavailableError
from mx_artifacts.metadata.base import BackendProperties, MetadataBackend
from mx_artifacts.metadata.memory import MemoryRecords
from mx_artifacts.metadata.memory_ballots import MemoryBallots
from mx_artifacts.observability.catalogue import BackendDown, BackendUp
from mx_artifacts.observability.events import Event
from mx_artifacts.runtime.clock import FakeClock
from mx_artifacts.server.health import BackendMonitor, MxHealthService
from mx_artifacts.version import __version__
from mx_artifacts.wire.gen.model_express import health_pb2 as mx_health_pb2

DOWN = BackendUnavailableError("the database is gone", hint="start it")
CALL = cast(grpc.aio.ServicerContext, None)


class Database:
    """A connection that fails by `error` while there is one."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.pings = 0

    async def start(self) -> None: ...

    async def ping(self) -> None:
        self.pings += 1
        if self.error is not None:
            raise self.error

    async def close(self) -> None: ...


class World:
    def __init__(self) -> None:
        self.database = Database()
        self.events: list[Event] = []
        backend = MetadataBackend(
            BackendProperties("made up", survives_restart=True, shared=True),
            MemoryRecords(),
            MemoryBallots(),
            (self.database,),
        )
        self.monitor = BackendMonitor(backend, self.events.append)

    async def standard_answer(self, service: str = "") -> int:
        request = health_pb2.HealthCheckRequest(service=service)
        answer = await self.monitor.servicer.Check(request, CALL)
        return int(answer.status)

    async def mx_answer(self) -> str:
        service = MxHealthService(self.monitor, FakeClock())
        return (await service.GetHealth(mx_health_pb2.HealthRequest(), CALL)).status


SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("service", ["", "model_express.p2p.P2pService"])
def test_the_standard_answer_follows_the_backend(world: World, service: str) -> None:
    async def run() -> None:
        for error, answer in ((None, SERVING), (DOWN, NOT_SERVING), (None, SERVING)):
            world.database.error = error
            await world.monitor.check()
            assert await world.standard_answer(service) == answer

    asyncio.run(run())


def test_deployed_clients_are_answered_while_the_backend_does_not_answer(world: World) -> None:
    async def run() -> None:
        await world.monitor.check()
        assert await world.mx_answer() == "ok"
        world.database.error = DOWN
        await world.monitor.check()
        assert await world.mx_answer() == "metadata backend unavailable"

    asyncio.run(run())


def test_each_change_of_health_is_logged_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        for error in (None, DOWN, DOWN, None, None, DOWN):
            world.database.error = error
            await world.monitor.check()

    asyncio.run(run())
    assert world.events == [BackendDown(DOWN), BackendUp(), BackendDown(DOWN)]
    assert caplog.text.count("the database is gone; start it") == 2


def test_it_asks_until_it_is_stopped(world: World) -> None:
    async def run() -> None:
        stop = asyncio.Event()

        async def ping() -> None:
            world.database.pings += 1
            if world.database.pings == 3:
                stop.set()

        world.database.ping = ping  # type: ignore[method-assign]
        await world.monitor.run(stop, interval_seconds=0)
        assert world.database.pings == 3
        await world.monitor.run(stop, interval_seconds=0)
        assert world.database.pings == 3

    asyncio.run(run())


def test_a_bug_is_not_taken_for_an_outage(world: World) -> None:
    world.database.error = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        asyncio.run(world.monitor.check())
    assert world.events == []


def test_version_and_uptime_are_the_server_s(world: World) -> None:
    async def run() -> mx_health_pb2.HealthResponse:
        clock = FakeClock()
        clock.advance(100)
        service = MxHealthService(world.monitor, clock)
        clock.advance(7.9)
        return await service.GetHealth(mx_health_pb2.HealthRequest(), CALL)

    answer = asyncio.run(run())
    assert (answer.version, answer.uptime) == (__version__, 7)
