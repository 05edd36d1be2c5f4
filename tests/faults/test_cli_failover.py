"""Sources that are dead, or another one by now, among those that the server lists as ready."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path

from tests.support.nodes import Cluster, warm_cache
from tests.support.processes import Service
from tests.support.trees import read_tree
from tests.support.valkey import free_port

SAME_ORDER = {"MX_P2P_SOURCE_SELECTOR": "rendezvous_hash"}


def endpoint_of(source: Service) -> str:
    return str(source.ready["published"][0]["endpoint"])


def test_a_dead_source_that_is_first_is_left_for_a_living_one(
    cluster: Cluster, cache: Path, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        pair = [stack.enter_context(cluster.source(cache)) for _ in range(2)]
        by_endpoint = {endpoint_of(source): source for source in pair}
        code, plan = cluster.fetch(tmp_path / "cold", "--dry-run", **SAME_ORDER)
        assert code == 0
        first, second = (found["endpoint"] for found in plan["planned"][0]["sources"])
        by_endpoint[first].stop(signal.SIGKILL)
        assert {found["status"] for found in cluster.sources()} == {"ready"}
        with cluster.target(tmp_path / "cold", **SAME_ORDER) as target:
            failed = target.expect("transfer.source_failed")
            assert failed["endpoint"] == first
            assert failed["error"]["type"] == "PeerLostError"
            code, done = target.end()
        assert (code, done["installed"][0]["source"]["endpoint"]) == (0, second)
        assert read_tree(tmp_path / "cold") == read_tree(cache)
        by_endpoint[second].stop(signal.SIGKILL)
        code, error = cluster.fetch(tmp_path / "colder", **SAME_ORDER)
    assert (code, error["type"]) == (15, "TransferFailedError")
    assert [attempt["source"] for attempt in error["attempts"]] == [first, second]
    assert not (tmp_path / "colder").exists()
    assert cluster.staged() == []


def test_another_artifact_at_a_dead_sources_address_is_not_taken_for_it(
    cluster: Cluster, cache: Path, tmp_path: Path
) -> None:
    port = ("--port", str(free_port()))
    other = Cluster(tmp_path / "other", cluster.env, cluster.model + " of another kind")
    other.directory.mkdir()
    with cluster.source(cache, *port) as dead:
        dead.stop(signal.SIGKILL)
    with other.source(warm_cache(tmp_path / "newer"), *port):
        code, error = cluster.fetch(tmp_path / "cold")
    assert (code, error["type"]) == (10, "TransferFailedError")
    assert error["attempts"][0]["error"]["type"] == "RecordNotFoundError"
    assert not (tmp_path / "cold").exists()
    assert cluster.staged() == []
