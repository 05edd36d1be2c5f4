"""A central server, or its backend (real Valkey), that comes back empty while a source serves."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.nodes import Cluster, clean_environment
from tests.support.processes import run_cli, serving
from tests.support.valkey import free_port, running, valkey_binary

BEATING = {"MX_HEARTBEAT_INTERVAL_SECS": "1"}
PATIENCE_SECONDS = 60.0


def wait_for_sources(cluster: Cluster) -> list[Any]:
    """Return the list as soon as it holds one; ready records only count."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = [source for source in cluster.sources() if source["status"] == "ready"]
        if found:
            return found
        assert time.monotonic() < deadline, "the source did not come back"
        time.sleep(0.2)


def identity(source: Any) -> tuple[str, str]:
    return source["mx_source_id"], source["worker_id"]


@pytest.fixture
def quiet_cluster(tmp_path: Path) -> Cluster:
    """Return a cluster whose server the test starts, at a port that it keeps."""
    env = clean_environment(tmp_path) | {"MX_SERVER_ADDRESS": f"127.0.0.1:{free_port()}"}
    return Cluster(tmp_path, env, "m")


def port_of(cluster: Cluster) -> str:
    return cluster.env["MX_SERVER_ADDRESS"].rpartition(":")[2]


def test_a_server_that_was_killed_comes_back_empty(
    quiet_cluster: Cluster, cache: Path, tmp_path: Path
) -> None:
    cluster = quiet_cluster
    serve = ("serve", "--port", port_of(cluster))
    with ExitStack() as stack:
        with serving(*serve, env=cluster.env, logs=tmp_path) as server:
            source = stack.enter_context(cluster.source(cache, **BEATING))
            (before,) = wait_for_sources(cluster)
            server.stop(signal.SIGKILL)
        down = run_cli("sources", "list", "--format", "json", env=cluster.env)
        assert down.returncode == 14
        stack.enter_context(serving(*serve, env=cluster.env, logs=tmp_path))
        (after,) = wait_for_sources(cluster)
        assert identity(after) == identity(before)
        assert cluster.fetch(tmp_path / "cold")[0] == 0
        assert source.stop() == 0


def test_a_backend_that_is_flushed_or_killed_comes_back_empty(
    quiet_cluster: Cluster, cache: Path, tmp_path: Path
) -> None:
    cluster = quiet_cluster
    with running(valkey_binary(), tmp_path) as valkey:
        serve = ("serve", "--port", port_of(cluster), "--backend", valkey.url)
        with (
            serving(*serve, env=cluster.env, logs=tmp_path),
            cluster.source(cache, **BEATING) as source,
        ):
            (before,) = wait_for_sources(cluster)
            valkey.client.flushall()
            (flushed,) = wait_for_sources(cluster)
            assert identity(flushed) == identity(before)
            valkey.kill()
            down = run_cli("sources", "list", "--format", "json", env=cluster.env)
            assert down.returncode == 14, down.stdout
            valkey.start()
            (after,) = wait_for_sources(cluster)
            assert identity(after) == identity(before)
            assert source.stop() == 0
            assert [found["status"] for found in cluster.sources()] == ["stale"]
