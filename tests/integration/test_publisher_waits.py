"""Publishers wait for a central server that starts later; nothing else is waited for."""

from __future__ import annotations

import http.server
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mx_artifacts.artifacts.source.publisher_settings import PublisherSettings
from mx_artifacts.client.central import CentralClient
from mx_artifacts.errors import RemoteError
from mx_artifacts.observability.catalogue import ServerAwaited
from mx_artifacts.observability.events import Event
from mx_artifacts.publisher import ArtifactPublisher, PublishResult
from mx_artifacts.server.app import ServerConfig
from tests.support.artifacts import new_agent
from tests.support.central import running_central
from tests.support.child import DEADLINE_SECONDS
from tests.support.fleet import IDENTITY, KIND, fill_cache
from tests.support.nodes import Cluster, clean_environment, warm_cache
from tests.support.processes import running, serving
from tests.support.valkey import RedisProcess, free_port, valkey_binary

LONG = "600s"


@pytest.fixture(name="port")
def _port() -> int:
    return free_port()


@pytest.fixture(name="cluster")
def _cluster(tmp_path: Path, port: int, request: pytest.FixtureRequest) -> Cluster:
    env = clean_environment(tmp_path / "home") | {"MX_SERVER_ADDRESS": f"127.0.0.1:{port}"}
    return Cluster(tmp_path, env, model=request.node.nodeid)


@pytest.fixture(name="cache")
def _cache(tmp_path: Path) -> Path:
    return warm_cache(tmp_path / "warm")


def test_a_server_that_starts_later(cluster: Cluster, cache: Path, port: int) -> None:
    args = cluster.source_args(cache, "--publish-timeout", LONG)
    serve = ("serve", "--port", str(port))
    with running(*args, env=cluster.env, logs=cluster.directory) as source:
        waiting = source.expect("publish.waiting")
        assert waiting["error"]["type"] == "BackendUnavailableError"
        with serving(*serve, env=cluster.env, logs=cluster.directory):
            assert source.expect("result")["published"]
            assert [each["status"] for each in cluster.sources()] == ["ready"]
            source.send(signal.SIGTERM)
            assert source.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait(cluster: Cluster, cache: Path, number: int) -> None:
    args = cluster.source_args(cache, "--publish-timeout", LONG)
    with running(*args, env=cluster.env, logs=cluster.directory) as source:
        assert source.expect("publish.waiting")
        source.send(number)
        code, error = source.end()
    assert (code, error["type"]) == (130, "Interrupted")
    assert cluster.sealed() == []


def test_it_waits_for_the_publish_timeout(cluster: Cluster, cache: Path) -> None:
    for args in (("--publish-timeout", "1.5s"), ("--publish-timeout", "0")):
        code, error = cluster.publish(cache, *args)
        assert (code, error["type"]) == (14, "BackendUnavailableError")


class _Web(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args: object) -> None: ...


@pytest.fixture(name="stranger")
def _stranger() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Web) as web:
        thread = threading.Thread(target=web.serve_forever)
        thread.start()
        yield f"127.0.0.1:{web.server_port}"
        web.shutdown()
        thread.join()


def test_a_stranger_is_not_waited_out(cluster: Cluster, cache: Path, stranger: str) -> None:
    code, error = cluster.publish(
        cache, "--publish-timeout", LONG, **{"MX_SERVER_ADDRESS": stranger}
    )
    assert (code, error["type"]) == (14, "RemoteError")


class LibraryPublisher:
    """Publishes in a thread, as it would wait; `events` are what it says meanwhile."""

    def __init__(self, address: str, place: Path, resources: ExitStack) -> None:
        self.events: list[Event] = []
        self.waits = threading.Event()
        self.published: PublishResult | BaseException | None = None
        self._root = fill_cache(place / "warm", files=3, file_bytes=1000)
        agent = new_agent("source")
        resources.callback(agent.close)
        client = resources.enter_context(CentralClient(address))
        settings = PublisherSettings.from_environment(
            env={"MX_PUBLISH_TIMEOUT_SECS": LONG}, bundle_root=place / "sealed", port=0
        )
        self._publisher = ArtifactPublisher(
            client=client, transport=agent, settings=settings, events=self._take
        )
        resources.callback(self._publisher.close)
        self.thread = threading.Thread(target=self._publish)
        self.thread.start()

    def _take(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, ServerAwaited):
            self.waits.set()

    def _publish(self) -> None:
        try:
            self.published = self._publisher.publish(KIND, IDENTITY, {"": self._root})
        except BaseException as error:
            self.published = error


def test_the_library_waits_too(tmp_path: Path, port: int) -> None:
    with ExitStack() as resources:
        publisher = LibraryPublisher(f"127.0.0.1:{port}", tmp_path, resources)
        assert publisher.waits.wait(DEADLINE_SECONDS)
        with running_central(ServerConfig(port=port)):
            publisher.thread.join(DEADLINE_SECONDS)
            assert isinstance(publisher.published, PublishResult)
            resources.close()
    assert len([e for e in publisher.events if isinstance(e, ServerAwaited)]) == 1


def test_the_library_does_not_wait_a_stranger_out(tmp_path: Path, stranger: str) -> None:
    with ExitStack() as resources:
        publisher = LibraryPublisher(stranger, tmp_path, resources)
        publisher.thread.join(DEADLINE_SECONDS)
    assert isinstance(publisher.published, RemoteError)
    assert not publisher.waits.is_set()


def test_a_backend_that_starts_later_is_waited_for(tmp_path: Path) -> None:
    """The central server answers, but cannot store the record yet; what was sealed is kept."""
    valkey = RedisProcess(valkey_binary(), tmp_path)
    config = ServerConfig(port=0, backend_url=valkey.url)
    with running_central(config) as address, ExitStack() as resources:
        publisher = LibraryPublisher(address, tmp_path, resources)
        assert publisher.waits.wait(DEADLINE_SECONDS)
        resources.callback(valkey.kill)
        valkey.start()
        publisher.thread.join(DEADLINE_SECONDS)
        assert isinstance(publisher.published, PublishResult)
