"""A worker server's own part: load, health, the expiry of leases, and the order of its end.

Services, gRPC and the port are made up; tests/integration/test_worker_server.py has the real ones.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import grpc
import pytest

from mx_artifacts.errors import ConfigurationError
from mx_artifacts.observability.catalogue import WorkerPortChanged
from mx_artifacts.observability.events import Event
from mx_artifacts.wire.listen import ListenSettings
from mx_artifacts.worker import worker_server
from mx_artifacts.worker.base import ServedService
from mx_artifacts.worker.serving_settings import ServingSettings
from mx_artifacts.worker.worker_server import HALF_LOAD_READERS, WorkerServer
from tests.support.artifacts import new_agent

TIMEOUT_SECONDS = 30.0
PORT = 6555


class FakeGrpcServer:
    def __init__(self, log: list[str]) -> None:
        self._log = log

    def start(self) -> None:
        self._log.append("server starts")

    def stop(self, grace: float | None) -> FakeGrpcServer:
        assert grace is None, "calls that wait are not waited for: the services wake them"
        self._log.append("server stops")
        return self

    def wait(self) -> None:
        self._log.append("server has stopped")


class Service(ServedService):
    """Notes what is asked of it; its leases go one by one each time that they are counted."""

    max_waiting_calls = 3

    def __init__(self, name: str, log: list[str]) -> None:
        self._name = name
        self._log = log
        self.draining = False
        self.readers = 0
        self.leases = 0
        self.is_stuck = False
        self.expired: list[int] = []
        self.was_asked_to_expire = threading.Event()

    @property
    def is_draining(self) -> bool:
        return self.draining

    def add_to(self, server: grpc.Server) -> None:
        self._log.append(f"{self._name} is added")

    def count_readers(self) -> int:
        return self.readers

    def count_leases(self) -> int:
        if self.leases and not self.is_stuck:
            self.leases -= 1
            self._log.append(f"{self._name} has {self.leases} leases")
        return self.leases

    def expire_leases(self) -> int:
        count = self.expired.pop(0) if self.expired else 0
        if not self.expired:
            self.was_asked_to_expire.set()
        return count

    def drain(self) -> None:
        self.draining = True
        self._log.append(f"{self._name} drains")

    def close(self) -> None:
        self._log.append(f"{self._name} closes")


class World:
    """A worker server of two services on a made-up port."""

    def __init__(self, log: list[str], **settings: Any) -> None:
        self.log = log
        self.events: list[Event] = []
        self.agent = new_agent("source")
        self.services = [Service("first", log), Service("second", log)]
        values = {"host": "10.0.0.1", "port": PORT, "stream_port": 0, **settings}
        self.server = WorkerServer(
            self.agent, ServingSettings(**values), self.services, events=self.events.append
        )

    def close(self) -> None:
        self.server.stop(0)
        self.agent.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_EXPIRE_INTERVAL_SECONDS", "_DRAIN_POLL_SECONDS"):
        monkeypatch.setattr(worker_server, name, 0.001)


class Ports:
    """Stands in for `bind`: free unless a test says otherwise."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.refusals: dict[int, ConfigurationError] = {}

    def bind(self, _server: object, host: str, port: int, _names: ListenSettings) -> int:
        self.asked.append((host, port))
        if port in self.refusals:
            raise self.refusals[port]
        return port or 40_000


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch) -> Ports:
    ports = Ports()
    monkeypatch.setattr(worker_server, "bind", ports.bind)
    return ports


@pytest.fixture
def new_world(monkeypatch: pytest.MonkeyPatch, ports: Ports) -> Iterator[Callable[..., World]]:
    with ExitStack() as worlds:

        def make(**settings: Any) -> World:
            log: list[str] = []
            server = FakeGrpcServer(log)
            monkeypatch.setattr(grpc, "server", lambda _threads, **_options: server)
            return worlds.enter_context(closing(World(log, **settings)))

        yield make


@pytest.fixture
def world(new_world: Callable[..., World]) -> World:
    return new_world()


# --- load and health -----------------------------------------------------------------------------


def test_load_grows_with_the_readers_of_all_services_and_never_is_full(world: World) -> None:
    assert world.server.load() == 0.0
    world.services[0].readers = 1
    with_one = world.server.load()
    world.services[1].readers = HALF_LOAD_READERS - 1
    assert 0.0 < with_one < world.server.load() == 0.5
    world.services[1].readers = 10**6
    assert 0.5 < world.server.load() < 1.0


def test_a_worker_with_a_draining_service_is_full_and_not_healthy(world: World) -> None:
    world.server.start()
    assert world.server.is_healthy()
    world.services[1].draining = True
    assert world.server.load() == 1.0
    assert not world.server.is_healthy()


def test_it_is_healthy_from_its_start_to_its_end(world: World) -> None:
    assert not world.server.is_healthy()
    world.server.start()
    assert world.server.is_healthy()
    world.server.stop(0)
    for service in world.services:
        service.draining = False
    assert not world.server.is_healthy(), "nothing expires leases any more"


def test_it_is_not_healthy_without_its_data_plane(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.server.start()
    world.agent.close()
    with caplog.at_level(logging.WARNING):
        assert not world.server.is_healthy()
    assert "the data plane does not work" in caplog.text


# --- the start -----------------------------------------------------------------------------------


def test_a_worker_listens_before_it_serves_and_knows_its_address(
    new_world: Callable[..., World], ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = new_world(listen="0.0.0.0", stream_port=7000, device_index=2)
    asked: list[Any] = []

    def listen(host: str, port: int, *, strict_port: bool = False) -> None:
        asked.append((host, port, strict_port))
        world.log.append("data listens")

    monkeypatch.setattr(world.agent, "listen", listen)
    assert world.server.start() == PORT + 2
    assert world.log == ["first is added", "second is added", "data listens", "server starts"]
    assert ports.asked == [("0.0.0.0", PORT + 2)]
    assert asked == [("0.0.0.0", 7002, False)]
    assert world.server.endpoint == f"10.0.0.1:{PORT + 2}"


def test_without_an_address_to_listen_on_it_is_the_announced_one(
    new_world: Callable[..., World], ports: Ports
) -> None:
    world = new_world(host="fd00::1")
    world.server.start()
    assert ports.asked == [("fd00::1", PORT)]
    assert world.server.endpoint == f"[fd00::1]:{PORT}"


def in_use() -> ConfigurationError:
    return ConfigurationError("cannot listen: in use")  # as where gRPC found it so


def not_ours() -> ConfigurationError:
    error = ConfigurationError("cannot listen: no such address")
    error.__cause__ = OSError(99, "Cannot assign requested address")
    return error


def test_if_the_port_is_in_use_another_one_is_taken_and_reported(
    new_world: Callable[..., World], ports: Ports
) -> None:
    world = new_world()
    ports.refusals[PORT] = in_use()
    port = world.server.start()
    assert port not in (0, PORT)
    assert world.server.endpoint == f"10.0.0.1:{port}"
    assert world.events == [WorkerPortChanged(PORT, port)]


@pytest.mark.parametrize(("error", "is_required"), [(in_use(), True), (not_ours(), False)])
def test_where_it_cannot_listen_as_it_must_it_does_not_start(
    new_world: Callable[..., World], ports: Ports, error: ConfigurationError, is_required: bool
) -> None:
    world = new_world(is_port_required=is_required)
    ports.refusals[PORT] = error
    with pytest.raises(ConfigurationError) as caught:
        world.server.start()
    assert caught.value is error
    assert ports.asked == [("10.0.0.1", PORT)]
    assert "server starts" not in world.log
    assert world.events == []


# --- leases --------------------------------------------------------------------------------------


def test_leases_of_all_services_expire_while_it_runs(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = world.services
    first.expired, second.expired = [0, 1], [0, 2]
    with caplog.at_level(logging.WARNING):
        world.server.start()
        for service in world.services:
            assert service.was_asked_to_expire.wait(TIMEOUT_SECONDS)
        world.server.stop(0)
    assert [record.args for record in caplog.records] == [(3,)]


# --- the end -------------------------------------------------------------------------------------

END = ["server stops", "first closes", "second closes", "server has stopped"]


def test_it_ends_in_an_order_in_which_no_lease_is_cut_short(world: World) -> None:
    """No more leases; those there are end; no more calls; then memory goes, which wakes calls that
    wait, and only then can the server be waited for."""
    world.server.start()
    world.services[0].leases, world.services[1].leases = 2, 1
    world.log.clear()
    world.server.stop(grace_seconds=60)
    assert world.log == [
        "first drains",
        "second drains",
        "first has 1 leases",
        "second has 0 leases",
        "first has 0 leases",
        *END,
    ]


def test_it_waits_no_longer_than_its_grace_for_leases(world: World) -> None:
    world.server.start()
    world.services[1].leases = 1
    world.services[1].is_stuck = True
    world.log.clear()
    world.server.stop(grace_seconds=0.01)
    assert world.log == ["first drains", "second drains", *END]
    assert world.services[1].leases == 1


def test_a_second_stop_does_not_wait_for_leases_and_frees_again(world: World) -> None:
    world.server.start()
    world.server.stop(0)
    world.services[0].leases = 1
    world.services[0].is_stuck = True
    world.log.clear()
    world.server.stop(grace_seconds=10**6)
    assert world.log == ["first drains", "second drains", *END]


def test_one_that_never_started_frees_what_it_was_given(world: World) -> None:
    world.log.clear()
    world.server.stop(0)
    assert world.log == ["first drains", "second drains", *END]
