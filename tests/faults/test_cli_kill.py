"""kill -9 of every kind of process, at several moments, through the command line and over NIXL."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.install_cases import contents, leftovers
from tests.support.nodes import Cluster, warm_cache
from tests.support.processes import Service
from tests.support.trees import read_tree

SLOW = ("--chunk-size", "4KiB", "--slots", "1", "--max-rate", "1MiB")
"""Two seconds for all: there is always a lease, and time to kill."""
NO_RESIDENTS = {"MX_ARTIFACT_RESIDENT_BUDGET": "1"}
NEVER_EXPIRING = {"MX_ARTIFACT_LEASE_TTL_SECS": "7200"}


@pytest.fixture
def big_cache(tmp_path: Path) -> Path:
    return warm_cache(tmp_path / "big", 2 << 20, files=16)


@pytest.fixture
def slow_source(cluster: Cluster, big_cache: Path) -> Iterator[Service]:
    with cluster.source(big_cache, *SLOW, **NO_RESIDENTS, **NEVER_EXPIRING) as source:
        yield source


def test_killed_targets_free_their_slot_and_leave_nothing_for_ever(
    cluster: Cluster, big_cache: Path, slow_source: Service, tmp_path: Path
) -> None:
    """The only slot's lease would last for hours, so one that is not freed blocks the last one."""
    for number, chunks in enumerate((0, 1, 12)):
        with cluster.target(tmp_path / f"killed{number}") as target:
            assert target.expect("transfer.started")
            for _ in range(chunks):
                assert target.expect("transfer.span")
            target.kill()
        assert not (tmp_path / f"killed{number}").exists()
        assert leftovers(tmp_path / f"killed{number}") != []
    root = tmp_path / "killed2"
    code, done = cluster.fetch(root)
    assert code == 0, done
    assert read_tree(root) == read_tree(big_cache)
    assert leftovers(root) == []
    assert cluster.staged() == []


@pytest.mark.parametrize("how", ["killed", "stopped, then killed", "stopped"])
def test_a_source_that_goes_away_is_a_clear_error(
    cluster: Cluster, slow_source: Service, tmp_path: Path, how: str
) -> None:
    (published,) = slow_source.ready["published"]
    options = ("--timeout", "2s") if how == "stopped" else ()
    with cluster.target(tmp_path / "cold", *options) as target:
        for _ in range(5):
            assert target.expect("transfer.span")
        if how != "killed":
            slow_source.send(signal.SIGSTOP)
        if how != "stopped":
            slow_source.stop(signal.SIGKILL)
        code, error = target.end()
    assert (code, error["type"]) == (15, "TransferFailedError")
    (attempt,) = error["attempts"]
    assert attempt["source"] == published["endpoint"]
    expected = {"PeerLostError", "ReadTimeoutError"} if how == "stopped" else {"PeerLostError"}
    assert attempt["error"]["type"] in expected
    assert published["endpoint"] in error["message"]
    assert error["hint"]
    assert error["retryable"]
    assert not (tmp_path / "cold").exists()
    assert cluster.staged() == []


@pytest.mark.parametrize(
    ("existing", "moments"),
    [
        (False, ("transfer.finished", "install.moved")),
        (True, ("install.locked", "install.staged", "install.moved")),
    ],
    ids=["no root", "older root"],
)
def test_killed_installs_leave_old_or_new_and_the_next_one_completes(
    cluster: Cluster, cache: Path, tmp_path: Path, existing: bool, moments: tuple[str, ...]
) -> None:
    root = tmp_path / "cold"
    if existing:
        warm_cache(root, 1000)
        (root / "mine").write_bytes(b"compiled here")
    before, new = contents(root), contents(cache)
    entries = {path.rpartition("/")[0] for path in new}
    with cluster.source(cache):
        for moment in moments:
            with cluster.target(root, "--replace") as target:
                assert target.expect(moment)
                target.kill()
            found = contents(root)
            for entry in entries:
                assert below(entry, found) in (below(entry, before), below(entry, new))
        code, done = cluster.fetch(root, "--replace")
    assert code == 0, done
    assert contents(root) == {**before, **new}
    assert leftovers(root) == []
    assert cluster.staged() == []


def below(entry: str, files: dict[str, bytes]) -> dict[str, bytes]:
    return {path: content for path, content in files.items() if path.startswith(f"{entry}/")}


def test_a_killed_publisher_leaves_nothing_on_the_disk(cluster: Cluster, cache: Path) -> None:
    with cluster.source(cache, **NO_RESIDENTS) as source:
        assert cluster.sealed() == []  # the bundle lies there all the same
        source.stop(signal.SIGKILL)
    assert cluster.sealed() == []
