"""Where a source listens and what it announces, in processes of their own."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mx_artifacts.artifacts.source.publisher_settings import PublisherSettings
from mx_artifacts.artifacts.target.fetch_values import FetcherSettings
from mx_artifacts.client.central import CentralClient
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.fetcher import ArtifactFetcher
from mx_artifacts.publisher import ArtifactPublisher
from tests.support.artifacts import new_agent
from tests.support.child import DEADLINE_SECONDS, ended
from tests.support.install_cases import contents
from tests.support.networks import ADDRESS, Network, obstacle, separate_network
from tests.support.nodes import Cluster, clean_environment, warm_cache
from tests.support.processes import last_object, running, serving

NOBODY = "127.0.0.1:1"
ELSEWHERE = "192.0.2.9:8001"


@pytest.fixture(scope="module", name="server")
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    logs = tmp_path_factory.mktemp("server")
    with serving("serve", "--port", "0", env=clean_environment(logs), logs=logs) as server:
        yield server.ready["address"]


@pytest.fixture(name="cluster")
def _cluster(tmp_path: Path, server: str, request: pytest.FixtureRequest) -> Cluster:
    env = clean_environment(tmp_path / "home") | {"MX_SERVER_ADDRESS": server}
    return Cluster(tmp_path, env, model=request.node.nodeid)


@pytest.fixture(name="cache")
def _cache(tmp_path: Path) -> Path:
    return warm_cache(tmp_path / "warm")


def endpoints(cluster: Cluster) -> list[str]:
    return [each["endpoint"] for each in cluster.sources()]


def free_ports(count: int) -> range:
    """Return so many ports in a row that are free."""
    while True:
        with ExitStack() as bound:
            sockets = [bound.enter_context(socket.socket()) for _ in range(count)]
            sockets[0].bind(("127.0.0.1", 0))
            first: int = sockets[0].getsockname()[1]
            try:
                for number, each in enumerate(sockets[1:], 1):
                    each.bind(("127.0.0.1", first + number))
            except (OSError, OverflowError):
                continue
            return range(first, first + count)


# --- what is announced need not be what is bound --------------------------------------------------


def test_a_name_is_announced_and_an_address_is_bound(cluster: Cluster, cache: Path) -> None:
    args = ("--host", "localhost", "--listen", "127.0.0.1")
    with cluster.source(cache, *args) as source:
        (published,) = source.ready["published"]
        host, _, port = published["endpoint"].rpartition(":")
        assert host == "localhost"
        assert endpoints(cluster) == [published["endpoint"]]
        with socket.create_connection(("127.0.0.1", int(port)), DEADLINE_SECONDS):
            pass
        code, fetched = cluster.fetch(cluster.directory / "cold")
    assert code == 0
    assert fetched["installed"][0]["source"]["endpoint"] == published["endpoint"]
    assert contents(cluster.directory / "cold") == contents(cache)


def test_the_announced_host_need_not_be_an_address_of_this_machine(
    cluster: Cluster, cache: Path
) -> None:
    env = {"MX_WORKER_HOST": "203.0.113.7", "MX_WORKER_LISTEN": "127.0.0.1"}
    with cluster.source(cache, **env) as source:
        (endpoint,) = endpoints(cluster)
        host, _, port = endpoint.rpartition(":")
        assert host == "203.0.113.7"
        with socket.create_connection(("127.0.0.1", int(port)), DEADLINE_SECONDS):
            pass
        assert "without authentication" not in source.errors


def test_the_stream_listens_where_the_worker_service_does(cluster: Cluster, cache: Path) -> None:
    (stream,) = free_ports(1)
    env = {"MX_WORKER_HOST": "203.0.113.7", "MX_WORKER_STREAM_PORT": str(stream)}
    with cluster.source(cache, "--listen", "127.0.0.2", **env):
        (endpoint,) = endpoints(cluster)
        for port in (int(endpoint.rpartition(":")[2]), stream):
            with socket.create_connection(("127.0.0.2", port), DEADLINE_SECONDS):
                pass
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port), DEADLINE_SECONDS)


def test_a_seed_announces_what_is_stated(cluster: Cluster, cache: Path) -> None:
    seed = ("--seed", "--host", "localhost", "--listen", "127.0.0.1")
    with (
        cluster.source(cache) as source,
        cluster.target(cluster.directory / "cold", *seed) as target,
    ):
        assert target.expect("result")
        (of_source,) = source.ready["published"]
        (of_seed,) = {*endpoints(cluster)} - {of_source["endpoint"]}
    assert of_seed.startswith("localhost:")


def test_listening_everywhere_is_stated_and_warned_of(cluster: Cluster, cache: Path) -> None:
    with cluster.source(cache, "--listen", "0.0.0.0") as source:
        (endpoint,) = endpoints(cluster)
        assert endpoint.startswith("127.0.0.1:")  # as the central server is there
        assert "serving on 0.0.0.0" in source.errors
        assert "without authentication" in source.errors


# --- what nobody else can use ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("server", "variables"),
    [
        (NOBODY, {"MX_WORKER_HOST": "0.0.0.0"}),
        (NOBODY, {"MX_WORKER_HOST": "::"}),
        (ELSEWHERE, {"MX_WORKER_HOST": "127.0.0.1"}),
        (ELSEWHERE, {"MX_WORKER_HOST": "localhost"}),
        (ELSEWHERE, {"MX_WORKER_LISTEN": "127.0.0.1"}),
    ],
)
def test_it_is_refused_before_anything_is_waited_for(
    cluster: Cluster, cache: Path, server: str, variables: dict[str, str]
) -> None:
    env = {"MX_SERVER_ADDRESS": server, "MX_PUBLISH_TIMEOUT_SECS": "600", **variables}
    published = cluster.publish(cache, **env)
    seeded = cluster.fetch(cluster.directory / "cold", "--seed", "--wait", "600s", **env)
    for code, error in (published, seeded):
        assert (code, error["type"]) == (2, "ConfigurationError")
        assert "cannot be announced" in error["message"]
        assert "MX_WORKER_HOST" in error["hint"]
    with CentralClient(server) as client:
        with pytest.raises(ConfigurationError, match="cannot be announced"):
            ArtifactPublisher(
                client=client,
                transport=new_agent("source"),
                settings=PublisherSettings.from_environment(env=env),
            )
        with pytest.raises(ConfigurationError, match="cannot be announced"):
            ArtifactFetcher(
                client=client, settings=FetcherSettings.from_environment(env=env, seed=True)
            )


def test_an_address_to_listen_on_that_is_not_ours_is_named(cluster: Cluster, cache: Path) -> None:
    code, error = cluster.publish(cache, "--host", "127.0.0.1", "--listen", "192.0.2.7")
    assert code == 2
    assert "192.0.2.7" in error["message"]
    assert "--listen (MX_WORKER_LISTEN)" in error["hint"]


# --- ports ----------------------------------------------------------------------------------------


def test_several_ranks_of_one_node_can_publish(cluster: Cluster, cache: Path) -> None:
    port, _, stream, _ = free_ports(4)
    env = {"MX_WORKER_GRPC_PORT": str(port), "MX_WORKER_STREAM_PORT": str(stream)}
    with (
        cluster.source(cache, "--device", "0", **env),
        cluster.source(cache, "--device", "1", "--worker-rank", "1", **env),
    ):
        assert {*endpoints(cluster)} == {f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"}
        for each in (stream, stream + 1):
            with socket.create_connection(("127.0.0.1", each), DEADLINE_SECONDS):
                pass
        code, error = cluster.publish(cache, "--device", "1", **env)
    assert code == 2
    assert f":{port + 1}: Address already in use" in error["message"]
    assert "MX_WORKER_GRPC_PORT, to which device index 1 is added" in error["hint"]


def test_a_stream_port_that_is_stated_must_be_free(cluster: Cluster, cache: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        code, error = cluster.publish(cache, MX_WORKER_STREAM_PORT=str(taken))
    assert code == 2
    assert f"port {taken}" in error["message"]
    assert "MX_WORKER_STREAM_PORT" in error["hint"]
    assert endpoints(cluster) == []


def test_another_port_is_used_if_a_default_port_is_in_use(cluster: Cluster, cache: Path) -> None:
    defaults = {"MX_WORKER_GRPC_PORT": "", "MX_WORKER_STREAM_PORT": ""}
    with (
        cluster.source(cache, **defaults),  # has 6555 and 6655, or a process before it has
        cluster.source(cache, **defaults) as second,
    ):
        assert "stream port 6655 is in use" in second.errors
        assert len({*endpoints(cluster)}) == 2
        assert "port 6555 is in use" in second.errors
        assert "MX_WORKER_GRPC_PORT" in second.errors


# --- names of hosts files, on a machine with a network --------------------------------------------


@pytest.fixture(scope="module", name="network")
def _network() -> Iterator[Network]:
    if why_not := obstacle():
        pytest.skip(why_not)
    with separate_network() as network:
        yield network


def hosts(place: Path, name: str, *lines: str) -> Path:
    file = place / f"hosts.{name}"
    file.write_text("\n".join(("127.0.0.1 localhost", *lines, "")))
    return file


def test_a_name_of_a_service_is_announced(
    network: Network, cluster: Cluster, cache: Path, tmp_path: Path
) -> None:
    """Targets resolve it to this machine, the source to an address that is not its own."""
    here = network.command(hosts(tmp_path, "source", "10.66.0.77 mx-source"))
    there = network.command(hosts(tmp_path, "target", f"{ADDRESS} mx-source"))
    env = dict(cluster.env)
    of_server = ("serve", "--host", "0.0.0.0", "--port", "8001")
    env["MX_SERVER_ADDRESS"] = f"{ADDRESS}:8001"
    publish = cluster.source_args(cache, "--host", "mx-source", "--port", "6600")
    fetch = cluster.target_args(tmp_path / "cold")
    with (
        serving(*of_server, env=env, logs=tmp_path, command=here),
        serving(*publish, env=env, logs=tmp_path, command=here) as source,
        running(*fetch, env=env, logs=tmp_path, command=there) as target,
    ):
        assert source.ready["published"][0]["endpoint"] == "mx-source:6600"
        assert f"serving on {ADDRESS} without authentication" in source.errors
        code, _ = target.end()
        assert code == 0
    assert contents(tmp_path / "cold") == contents(cache)


def test_a_server_under_this_machines_own_name(
    network: Network, cluster: Cluster, cache: Path, tmp_path: Path
) -> None:
    """Debian has it at 127.0.1.1, which others would take for themselves."""
    here = network.command(hosts(tmp_path, "head", "127.0.1.1 head"))
    env = {**cluster.env, "MX_SERVER_ADDRESS": "head:8002"}
    of_server = ("serve", "--host", "0.0.0.0", "--port", "8002")
    publish = cluster.source_args(cache, "--port", "6601")
    with serving(*of_server, env=env, logs=tmp_path, command=here):
        with serving(*publish, env=env, logs=tmp_path, command=here) as source:
            assert source.ready["published"][0]["endpoint"] == f"{ADDRESS}:6601"
        refused = ended([*here, *publish, "--host", "127.0.0.1", "--format", "json"], env=env)
    assert refused.returncode == 2
    assert "cannot be announced" in last_object(refused.stderr)["message"]
