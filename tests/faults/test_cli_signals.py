"""SIGTERM and SIGINT to every verb: an orderly end, a documented exit code, nothing left."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.nodes import Cluster, clean_environment, warm_cache
from tests.support.processes import running, serving

SLOW = ("--chunk-size", "4KiB", "--slots", "1", "--max-rate", "1MiB")
NO_RESIDENTS = {"MX_ARTIFACT_RESIDENT_BUDGET": "1"}
BOTH = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])


@pytest.fixture
def blackhole() -> Iterator[socket.socket]:
    """Listen, and never answer."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(60)
        yield listener


def test_a_fetch_that_is_interrupted_while_it_transfers(cluster: Cluster, tmp_path: Path) -> None:
    """Its slot is free at once; otherwise the next target would wait for the lease's end.

    UCX, which is loaded by then, would take SIGHUP for itself.
    """
    cache = warm_cache(tmp_path / "big", 2 << 20, files=16)
    leases = {"MX_ARTIFACT_LEASE_TTL_SECS": "7200"}
    with cluster.source(cache, *SLOW, **NO_RESIDENTS, **leases) as source:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with cluster.target(tmp_path / "cold") as target:
                for _ in range(5):
                    assert target.expect("transfer.span")
                target.send(number)
                code, error = target.end()
            assert (code, error["type"], error["exit_code"]) == (130, "Interrupted", 130)
            assert not (tmp_path / "cold").exists()
            assert cluster.staged() == []
        assert source.stop(signal.SIGINT) == 0
        assert source.errors == ""


@BOTH
@pytest.mark.parametrize("verb", ["publish", "fetch"])
def test_a_command_that_waits_for_its_server_can_be_interrupted(
    cluster: Cluster, cache: Path, blackhole: socket.socket, verb: str, number: int
) -> None:
    env = {"MX_SERVER_ADDRESS": f"127.0.0.1:{blackhole.getsockname()[1]}"}
    args = cluster.source_args(cache) if verb == "publish" else cluster.target_args(cache / "cold")
    env = {**cluster.env, **env, "MX_PUBLISH_TIMEOUT_SECS": "600"}
    with running(*args, env=env, logs=cluster.directory) as command:
        connection, _ = blackhole.accept()
        with connection:
            command.send(number)
            code, error = command.end()
    assert (code, error["type"]) == (130, "Interrupted")
    assert cluster.staged() == []
    assert cluster.sealed() == []


def test_a_fetch_that_waits_for_a_source_can_be_interrupted(
    cluster: Cluster, tmp_path: Path
) -> None:
    with cluster.target(tmp_path / "cold", "--wait", "600s") as target:
        assert target.expect("discover.waiting")
        target.send(signal.SIGTERM)
        assert target.end()[0] == 130


def test_a_source_that_is_asked_to_stop_during_a_read(cluster: Cluster, tmp_path: Path) -> None:
    """It ends in order; its target gets a clear error and installs nothing."""
    cache = warm_cache(tmp_path / "big", 2 << 20, files=16)
    with (
        cluster.source(cache, *SLOW, **NO_RESIDENTS) as source,
        cluster.target(tmp_path / "cold") as target,
    ):
        assert target.expect("transfer.span")
        assert source.stop() == 0
        code, error = target.end()
    assert (code, error["type"], error["retryable"]) == (15, "TransferFailedError", True)
    assert error["attempts"][0]["error"]["type"] == "PeerLostError"
    assert not (tmp_path / "cold").exists()
    assert cluster.staged() == []
    assert cluster.sealed() == []
    assert [found["status"] for found in cluster.sources()] == ["stale"]


def test_a_server_that_stops_first_does_not_block_the_others(
    cluster: Cluster, cache: Path, tmp_path: Path
) -> None:
    env = clean_environment(tmp_path)
    with serving("serve", "--port", "0", env=env, logs=tmp_path) as server:
        address = {"MX_SERVER_ADDRESS": server.ready["address"]}
        with cluster.source(cache, **address) as source:
            assert server.stop() == 0
            assert server.errors == ""
            assert source.stop() == 0
            assert "could not mark this source STALE" in source.errors
    assert cluster.sealed() == []
