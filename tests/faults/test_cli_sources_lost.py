"""Sources killed or stopped while they are read from, through the command line and over NIXL."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.install_cases import contents, leftovers
from tests.support.nodes import Cluster, warm_cache
from tests.support.processes import Running, Service, serving
from tests.support.valkey import free_port

CACHE_BYTES, SPANS = 24 << 20, 40
"""Each file is a span; there are two small ones more."""
SLOW = ("--max-rate", "16MiB")
"""One and a half seconds for all."""
SLOWER = ("--seed", "--max-rate", "2MiB")


@pytest.fixture
def big_cache(tmp_path: Path) -> Path:
    return warm_cache(tmp_path / "big", CACHE_BYTES, files=SPANS // 2)


@contextmanager
def slow_target(cluster: Cluster, root: Path, *args: str, percent: int) -> Iterator[Running]:
    """Start to fetch, slowly, and wait until so much has arrived."""
    with cluster.target(root, *SLOW, *args) as target:
        assert target.expect("transfer.started")
        await_more(target, percent)
        yield target


def await_more(target: Running, percent: int) -> None:
    for _ in range(SPANS * percent // 100):
        assert target.expect("transfer.span")


def endpoint_of(source: Service) -> str:
    return str(source.ready["published"][0]["endpoint"])


def installed(done: Any) -> Any:
    (one,) = done["installed"]
    return one


def test_others_take_over_from_sources_killed_early_half_way_and_late(
    cluster: Cluster, big_cache: Path, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        sources = [stack.enter_context(cluster.source(big_cache)) for _ in range(4)]
        with slow_target(cluster, tmp_path / "cold", percent=10) as target:
            sources[0].kill()
            await_more(target, 40)
            sources[1].kill()
            await_more(target, 40)
            sources[2].kill()
            code, done = target.end()
        assert code == 0, done
        # One of which nobody wanted to read any more goes unnoticed.
        assert set(installed(done)["left_behind"]) <= set(map(endpoint_of, sources[:3]))
    assert contents(tmp_path / "cold") == contents(big_cache)
    assert leftovers(tmp_path / "cold") == []


def test_a_waiting_target_continues_when_its_only_source_is_back(
    cluster: Cluster, big_cache: Path, tmp_path: Path
) -> None:
    """At its old address, and then at another one."""
    port = ("--port", str(free_port()))
    with ExitStack() as stack:
        first = stack.enter_context(cluster.source(big_cache, *port))
        target = stack.enter_context(
            slow_target(cluster, tmp_path / "cold", "--wait", "60s", percent=30)
        )
        first.kill()
        failed = target.expect("transfer.source_failed")
        assert failed["error"]["type"] == "PeerLostError"
        second = stack.enter_context(cluster.source(big_cache, *port))
        await_more(target, 40)
        second.kill()
        stack.enter_context(cluster.source(big_cache))
        code, done = target.end()
    assert code == 0, done
    assert endpoint_of(second) == endpoint_of(first)
    assert list(installed(done)["left_behind"]) == [endpoint_of(first)]
    assert CACHE_BYTES <= installed(done)["total_bytes"] < CACHE_BYTES + (1 << 20)
    assert contents(tmp_path / "cold") == contents(big_cache)
    assert leftovers(tmp_path / "cold") == []


@pytest.mark.parametrize(
    "env", [{}, {"MX_TRANSPORT": "nixl", "UCX_TLS": "tcp,self"}], ids=["stream", "nixl"]
)
def test_a_source_that_was_stopped_serves_on_after_its_target_has_left(
    cluster: Cluster, big_cache: Path, tmp_path: Path, env: dict[str, str]
) -> None:
    """Over TCP, UCX would abort it as soon as it goes on (transport/nixl.py)."""
    cluster = replace(cluster, env={**cluster.env, **env})
    with cluster.source(big_cache) as source:
        with slow_target(cluster, tmp_path / "cold", "--timeout", "4s", percent=30) as target:
            source.send(signal.SIGSTOP)
            code, error = target.end()
            assert code == 15, error
        source.send(signal.SIGCONT)
        for root in ("second", "third"):
            with cluster.target(tmp_path / root) as target:
                code, done = target.end()
            assert code == 0, done
            assert contents(tmp_path / root) == contents(big_cache)
        assert source.stop() == 0


def test_one_that_does_not_wait_fails_and_reads_only_the_rest_the_next_time(
    cluster: Cluster, big_cache: Path, tmp_path: Path
) -> None:
    root = tmp_path / "cold"
    with cluster.source(big_cache) as source:
        with slow_target(cluster, root, percent=50) as target:
            source.kill()
            code, error = target.end()
        assert (code, error["type"]) == (15, "TransferFailedError")
        assert [each["source"] for each in error["attempts"]] == [endpoint_of(source)]
        assert error["attempts"][0]["error"]["type"] == "PeerLostError"
        assert "parts" in error["message"]
        assert error["hint"]
        assert not root.exists()
    with cluster.source(big_cache):
        code, done = cluster.fetch(root)
    assert code == 0, done
    assert 0 < installed(done)["total_bytes"] < 0.6 * CACHE_BYTES
    assert contents(root) == contents(big_cache)
    assert leftovers(root) == []


def test_a_stopped_source_is_left_for_another(
    cluster: Cluster, big_cache: Path, tmp_path: Path
) -> None:
    with cluster.source(big_cache) as stopped, cluster.source(big_cache):
        with slow_target(cluster, tmp_path / "cold", percent=20) as target:
            stopped.send(signal.SIGSTOP)
            code, done = target.end()
        assert code == 0, done
    assert contents(tmp_path / "cold") == contents(big_cache)
    assert leftovers(tmp_path / "cold") == []


def test_a_transfer_continues_while_the_central_server_hangs_and_ends(
    cluster: Cluster, big_cache: Path, tmp_path: Path
) -> None:
    with serving("serve", "--port", "0", env=cluster.env, logs=tmp_path) as central:
        env = {**cluster.env, "MX_SERVER_ADDRESS": central.ready["address"]}
        here = Cluster(tmp_path, env, cluster.model)
        with here.source(big_cache) as first, here.source(big_cache):
            with slow_target(here, tmp_path / "cold", percent=20) as target:
                central.send(signal.SIGSTOP)
                first.kill()
                await_more(target, 40)
                central.kill()
                code, done = target.end()
            assert code == 0, done
    assert contents(tmp_path / "cold") == contents(big_cache)


def test_seeds_go_on_without_the_origin_and_without_a_killed_seed(
    cluster: Cluster, big_cache: Path, tmp_path: Path
) -> None:
    """The first seed has all; the second is killed while the third reads from it."""
    roots = [tmp_path / f"cold{number}" for number in range(3)]
    with ExitStack() as stack:
        origin = stack.enter_context(cluster.source(big_cache))
        first = stack.enter_context(cluster.target(roots[0], "--seed"))
        assert first.expect("result")
        origin.kill()
        second = stack.enter_context(slow_target(cluster, roots[1], *SLOWER, percent=10))
        third = stack.enter_context(slow_target(cluster, roots[2], percent=20))
        second.kill()
        code, done = third.end()
        assert code == 0, done
        assert contents(roots[2]) == contents(big_cache)
        assert not roots[1].exists()
        first.kill()
        code, error = cluster.fetch(tmp_path / "nobody")
        assert (code, error["type"]) == (15, "TransferFailedError"), error
        assert all(each["error"]["type"] == "PeerLostError" for each in error["attempts"])
