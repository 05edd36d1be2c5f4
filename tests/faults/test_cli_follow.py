"""--follow on both sides: a cache that grows, one that comes later, one that never settles."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from mx_artifacts.client.central import CentralClient
from mx_artifacts.core.sources import SourceQuery
from tests.support.child import DEADLINE_SECONDS
from tests.support.nodes import Cluster, clean_environment
from tests.support.processes import Running, Service, running, serving
from tests.support.triton_writer import BUSY, CALM, CHILDREN, GROUP, key, rewrite_until, write_group
from tests.support.triton_writer import write_groups as write_known

STATED = ("cuda_version=12.8", "gpu_arch=sm90", "triton_version=3", "triton_key=k")
WORDS: tuple[str, ...] = ("--kind", "triton", "--framework", "vllm")
WORDS += tuple(word for pair in STATED for word in ("--identity", pair))
FOLLOW = ("--follow", "--follow-interval", "200ms")
KNOWN = {key(number) for number in range(BUSY + CALM)}
UNSETTLED = "until they settle, the last sealed artifact is served"
NEW = BUSY + CALM
"""Number of the first group that is not known."""


@contextmanager
def following(cluster: Cluster, root: Path, *args: str, **env: str) -> Iterator[Service]:
    places = ("--root", str(root), "--bundle-root", str(cluster.directory / "sealed"))
    args = ("publish", *WORDS, "--model", cluster.model, *places, *FOLLOW, *args)
    with serving(*args, env={**cluster.env, **env}, logs=cluster.directory) as source:
        yield source


@contextmanager
def following_target(cluster: Cluster, root: Path) -> Iterator[Running]:
    places = ("--root", str(root), "--bundle-root", str(cluster.bundle_root))
    args = ("fetch-and-install", *WORDS, "--model", cluster.model, *places, *FOLLOW)
    with running(*args, env=cluster.env, logs=cluster.directory) as target:
        yield target


def keys_in(root: Path) -> set[str]:
    return {path.name for path in root.iterdir() if (path / GROUP).exists()}


def the_source(cluster: Cluster) -> tuple[str, str]:
    """Return status and artifact id of the one source that there is."""
    with CentralClient(cluster.env["MX_SERVER_ADDRESS"]) as client:
        (ref,) = client.list_sources(SourceQuery(model_name=cluster.model))
        stored = client.get_metadata(ref.mx_source_id, ref.worker_id)
    assert stored is not None
    assert stored.record.artifact is not None
    return stored.record.status.name.lower(), stored.record.artifact.artifact_id


def test_new_kernels_come_to_a_target_that_follows(cluster: Cluster, tmp_path: Path) -> None:
    cache, cold = write_known(tmp_path / "warm"), tmp_path / "cold"
    with following(cluster, cache) as source, following_target(cluster, cold) as target:
        (first,) = source.ready["published"]
        assert target.expect("installed")["source"]["artifact_id"] == first["artifact_id"]
        assert keys_in(cold) == KNOWN
        (cold / key(0) / "k.cubin").write_bytes(b"the engine's own")
        write_group(cache, NEW, 0)
        again = source.expect("republished")
        before = again["before"]
        assert before == {name: first[name] for name in before}
        changing = {"artifact_id", "files", "total_bytes"}
        assert {name for name in before if again[name] != before[name]} == changing
        assert again["files"] == first["files"] + len(CHILDREN) + 1
        assert the_source(cluster) == ("ready", again["artifact_id"])
        installed = target.expect("installed")
        assert installed["source"]["artifact_id"] == again["artifact_id"]
        assert installed["roots"][0]["installed"] == [key(NEW)]
        assert keys_in(cold) == {*KNOWN, key(NEW)}
        assert (cold / key(0) / "k.cubin").read_bytes() == b"the engine's own"
        target.send(signal.SIGTERM)
        assert target.wait() == 0
        assert source.stop() == 0
        assert source.errors == ""
    assert the_source(cluster) == ("stale", again["artifact_id"])
    assert (cluster.sealed(), cluster.staged()) == ([], [])


def test_a_cache_that_comes_later_and_goes_and_comes(cluster: Cluster, tmp_path: Path) -> None:
    cache = tmp_path / "warm"
    with following(cluster, cache) as source:
        assert (source.ready["published"], source.ready["waited_for"]) == ([], ["triton"])
        write_known(cache)
        first = source.expect("published")
        assert the_source(cluster) == ("ready", first["artifact_id"])
        shutil.rmtree(cache)
        failed = source.expect("publish.failed")
        assert failed["error"]["type"] == "NothingToPublishError"
        assert the_source(cluster) == ("ready", first["artifact_id"])
        time.sleep(0.6)  # a few looks more
        write_known(cache)
        write_group(cache, NEW, 0)
        files = (NEW + 1) * (len(CHILDREN) + 1)
        while source.expect("republished")["files"] < files:  # a slow machine: half of them
            pass
        assert source.stop() == 0
        assert source.errors.count("the last sealed artifact is still served") == 1


def test_a_writer_that_does_not_settle(cluster: Cluster, tmp_path: Path) -> None:
    """What was sealed before is served meanwhile, which is said once; then it is sealed."""
    cache = write_known(tmp_path / "warm")
    stop = threading.Event()
    with following(cluster, cache, "--settle", "1s", "--ready-timeout", "500ms") as source:
        assert source.ready["waited_for"] == ["triton"]
        first = source.expect("published")
        writer = threading.Thread(target=rewrite_until, args=(stop, cache))
        writer.start()
        try:
            deadline = time.monotonic() + DEADLINE_SECONDS
            while UNSETTLED not in source.errors and time.monotonic() < deadline:
                time.sleep(0.1)
            time.sleep(0.5)
            assert the_source(cluster) == ("ready", first["artifact_id"])
        finally:
            stop.set()
            writer.join()
        again = source.expect("republished")
        assert the_source(cluster) == ("ready", again["artifact_id"])
        assert source.stop() == 0
        assert source.errors.count(UNSETTLED) == 1


def test_a_stop_while_it_is_sealed_again(cluster: Cluster, tmp_path: Path) -> None:
    cache = write_known(tmp_path / "warm")
    with following(cluster, cache) as source:
        write_group(cache, NEW, 0)
        (cache / "big").mkdir()
        (cache / "big" / "k.cubin").write_bytes(bytes(1 << 20))
        assert source.expect("seal.packed")
        assert source.stop() == 0
        assert source.errors == ""
    assert the_source(cluster)[0] == "stale"
    assert cluster.sealed() == []


def test_a_publisher_that_is_killed_while_it_seals_again(cluster: Cluster, tmp_path: Path) -> None:
    """What it announced before goes stale, as of any publisher that is silent."""
    cache = write_known(tmp_path / "warm")
    env = clean_environment(tmp_path / "home")
    timeout = ("--heartbeat-timeout", "1s", "--reaper-interval", "1s")
    with serving("serve", "--port", "0", *timeout, env=env, logs=tmp_path) as server:
        cluster = replace(cluster, env={**env, "MX_SERVER_ADDRESS": server.ready["address"]})
        beats = {"MX_HEARTBEAT_INTERVAL_SECS": "200ms"}
        with following(cluster, cache, **beats) as source:
            write_group(cache, NEW, 0)
            assert source.expect("seal.packed")
            source.kill()
        deadline = time.monotonic() + DEADLINE_SECONDS
        while the_source(cluster)[0] == "ready" and time.monotonic() < deadline:
            time.sleep(0.1)
        # The new one, if it was announced in the moment before the kill.
        assert the_source(cluster)[0] == "stale"
