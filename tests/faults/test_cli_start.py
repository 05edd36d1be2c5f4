"""What is missing, in the way or somebody else's: named, with the next step, in bounded time."""

from __future__ import annotations

import http.server
import os
import resource
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.nodes import Cluster
from tests.support.processes import last_object, run_cli
from tests.support.trees import read_tree

NO_NIXL = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0].startswith("nixl"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
"""
NO_MEMLOCK = """
from importlib.machinery import ExtensionFileLoader

load = ExtensionFileLoader.exec_module

def load_and_spoil(loader, module):
    load(loader, module)
    if module.__name__.endswith("._bindings"):
        def refuse(*arguments):
            raise module.nixlBackendError("NIXL_ERR_BACKEND")
        module.nixlAgent.registerMem = refuse

ExtensionFileLoader.exec_module = load_and_spoil
"""
"""As a NIC's driver does it when a buffer exceeds the limit; there is no NIC here."""


class _Silent(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def strangers() -> Iterator[dict[str, str]]:
    """Give addresses of servers that are not ours."""
    with (
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Silent) as web,
        socket.socket() as blackhole,
    ):
        blackhole.bind(("127.0.0.1", 0))
        blackhole.listen()
        thread = threading.Thread(target=web.serve_forever)
        thread.start()
        try:
            yield {
                "a web server": f"127.0.0.1:{web.server_port}",
                "a blackhole": f"127.0.0.1:{blackhole.getsockname()[1]}",
                "nobody": "127.0.0.1:1",
                "no such name": "no-such-host.invalid:8001",
                "no port": "127.0.0.1",
            }
        finally:
            web.shutdown()
            thread.join()


@pytest.mark.parametrize("verb", ["publish", "fetch"])
@pytest.mark.parametrize(
    ("server", "code"),
    [
        ("a web server", 14),
        ("a blackhole", 14),
        ("nobody", 14),
        ("no such name", 14),
        ("no port", 2),
    ],
)
def test_a_wrong_server_is_named(
    cluster: Cluster, cache: Path, strangers: dict[str, str], verb: str, server: str, code: int
) -> None:
    env = {"MX_SERVER_ADDRESS": strangers[server]}
    if verb == "publish":
        got, error = cluster.publish(cache, **env)
    else:
        got, error = cluster.fetch(cluster.directory / "cold", **env)
    assert got == error["exit_code"] == code
    assert strangers[server] in error["message"]
    assert "MX_SERVER_ADDRESS" in error["hint"]
    assert error["retryable"] == (server in ("a blackhole", "nobody", "no such name"))
    assert not (cluster.directory / "cold").exists()
    assert cluster.staged() == []


def test_a_port_in_use_is_named(cluster: Cluster, cache: Path, strangers: dict[str, str]) -> None:
    port = strangers["a web server"].rpartition(":")[2]
    code, error = cluster.publish(cache, "--port", port)
    assert (code, error["type"]) == (2, "ConfigurationError")
    assert port in error["message"]
    assert "--port" in error["hint"]
    assert cluster.sealed() == []


@pytest.mark.parametrize(
    ("env", "shim", "kind", "words", "hint"),
    [
        ({}, NO_NIXL, "TransportUnavailableError", "NIXL cannot be imported", "pip install nixl"),
        ({"UCX_TLS": "X"}, "", "TransportUnavailableError", "UCX does not start", "UCX_TLS"),
        ({}, NO_MEMLOCK, "RegistrationError", "NIXL cannot register", "ulimit -l"),
    ],
    ids=["no NIXL", "no UCX", "no memlock"],
)
def test_a_data_plane_that_does_not_work_is_named(
    cluster: Cluster,
    cache: Path,
    tmp_path: Path,
    env: dict[str, str],
    shim: str,
    kind: str,
    words: str,
    hint: str,
) -> None:
    (tmp_path / "sitecustomize.py").write_text(shim)
    path = os.pathsep.join(filter(None, (str(tmp_path), cluster.env.get("PYTHONPATH"))))
    env = {**env, "PYTHONPATH": path, "MX_TRANSPORT": "nixl"}
    failures = [cluster.publish(cache, **env)]
    with cluster.source(cache):
        with cluster.target(tmp_path / "cold", **env) as target:
            code, done = target.end()
        if shim == NO_MEMLOCK:
            failures.append((code, done))
            assert not (tmp_path / "cold").exists()
        else:  # the stream does without
            assert code == 0, done
            assert set(done["installed"][0]["transports"].values()) == {"stream"}
    for code, error in failures:
        assert (code, error["type"]) == (15, kind)
        assert words in error["message"]
        assert hint in error["hint"]
    assert cluster.staged() == []


def test_a_low_memlock_limit_is_no_obstacle_on_one_host(
    cluster: Cluster, cache: Path, tmp_path: Path
) -> None:
    """Reads of shared memory and TCP pin nothing."""
    before = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (64 * 1024, before[1]))
    try:
        with cluster.source(cache):
            code, done = cluster.fetch(tmp_path / "cold")
    finally:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, before)
    assert code == 0, done
    assert read_tree(tmp_path / "cold") == read_tree(cache)


@pytest.mark.parametrize("place", ["a file", "read-only"])
def test_a_bundle_root_that_cannot_be_used_is_named(
    cluster: Cluster, cache: Path, tmp_path: Path, place: str
) -> None:
    blocked = "/proc/mx-artifacts" if place == "read-only" else str(tmp_path / "file")
    (tmp_path / "file").touch()
    code, error = cluster.publish(cache, "--bundle-root", blocked)
    assert (code, error["type"]) == (2, "UnusablePlaceError")
    assert blocked in error["message"]
    assert "--bundle-root" in error["hint"]


def test_a_stranger_in_the_place_of_a_source_is_named(
    cluster: Cluster, strangers: dict[str, str]
) -> None:
    places = {"a web server": 14, "the central server": 14, "nobody": 15}
    addresses = {**strangers, "the central server": cluster.env["MX_SERVER_ADDRESS"]}
    for place, code in places.items():
        args = ("inspect", "--source", addresses[place], "--source-id", "s", "--format", "json")
        done = run_cli(*args, env=cluster.env)
        error = last_object(done.stderr)
        assert done.returncode == error["exit_code"] == code
        assert addresses[place] in error["message"]
        assert "source" in error["hint"]
        assert "another source will be used" not in error["hint"]


def test_a_time_that_is_too_short_is_named(cluster: Cluster, cache: Path) -> None:
    with cluster.source(cache):
        code, error = cluster.fetch(cluster.directory / "cold", "--timeout", "1ms")
    assert code == 15
    assert "another source" not in error["hint"]


@pytest.mark.parametrize("name", ["foo", "inproc"])
def test_a_transport_that_other_nodes_do_not_reach(
    cluster: Cluster, cache: Path, name: str
) -> None:
    code, error = cluster.publish(cache, MX_TRANSPORT=name)
    assert (code, error["type"]) == (2, "ConfigurationError")
    assert "MX_TRANSPORT" in error["hint"]
    assert cluster.sealed() == []


def test_not_to_wait(cluster: Cluster) -> None:
    code, error = cluster.fetch(cluster.directory / "cold", "--wait", "0")
    assert (code, error["type"]) == (10, "NoSourceError")
