"""Odd source trees, from `publish` to the files that arrive."""

from __future__ import annotations

import os
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import as_user
from tests.support.install_cases import contents
from tests.support.nodes import FIRST, SECOND, Cluster, warm_cache
from tests.support.processes import running

ENTRIES = "1.0/sm90/autotuner"
OTHER = "c" * 64
STRANGER = 1001230000
"""A user without a passwd entry, as OpenShift makes them."""


def skipped_of(result: Any) -> dict[str, list[str]]:
    """Return examples of what was left out, by reason."""
    (root,) = result["published"][0]["roots"]
    return {reason: group["examples"] for reason, group in root["skipped"].items()}


def test_links_names_and_modes(cluster: Cluster, cache: Path, tmp_path: Path) -> None:
    entry, other = cache / ENTRIES / FIRST, cache / ENTRIES / OTHER
    original = (entry / "tuned.bin").read_bytes()
    (tmp_path / "secret").write_bytes(b"outside")
    (entry / "relative").symlink_to("tuned.bin")
    (entry / "absolute").symlink_to(entry / "tuned.bin")
    (entry / "outside").symlink_to(tmp_path / "secret")
    (entry / "dangling").symlink_to("nothing")
    (entry / "hard").hardlink_to(entry / "tuned.bin")
    (entry / ("n" * 255)).write_bytes(b"long")
    os.mkfifo(entry / "fifo")
    (entry / "setuid").write_bytes(b"mode")
    (entry / "setuid").chmod(0o6777)
    (entry / "hidden").write_bytes(b"mode")
    (entry / "hidden").chmod(0o000)
    entry.chmod(0o1777)
    other.mkdir()
    (other / "kept").write_bytes(b"with the odd one")
    (Path(os.fsdecode(os.fsencode(other) + b"/odd\xff"))).write_bytes(b"odd")
    with cluster.source(cache) as source:
        code, done = cluster.fetch(tmp_path / "cold")
    assert code == 0, done
    arrived = tmp_path / "cold" / ENTRIES / FIRST
    found = contents(arrived)
    for name in ("tuned.bin", "relative", "absolute", "hard"):
        assert found.pop(name) == original
    assert found.pop("n" * 255) == b"long"
    assert set(found) == {"best_config.json", "setuid", "hidden"}
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (arrived, *arrived.iterdir())}
    assert not any(path.is_symlink() for path in arrived.iterdir())
    assert not any(mode & 0o7022 for mode in modes.values()), modes
    assert modes["setuid"] & 0o111
    assert modes["hidden"] & 0o400
    assert sorted(os.listdir(arrived.parent)) == sorted([FIRST, SECOND])
    examples = [path for paths in skipped_of(source.ready).values() for path in paths]
    for name in ("outside", "dangling", "fifo"):
        assert any(path.endswith(f"{FIRST}/{name}") for path in examples), examples
    assert any(OTHER in path for path in examples), examples


@contextmanager
def repeating(change: Callable[[], object]) -> Iterator[None]:
    """Call `change` again and again, for as long as the block lasts."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(0.001):
            change()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_entries_that_change_while_they_are_packed(
    cluster: Cluster, cache: Path, tmp_path: Path
) -> None:
    """Each arrives whole or, said so, not at all; the others arrive."""
    growing, flickering = cache / ENTRIES / OTHER, cache / ENTRIES / ("d" * 64)
    for entry in (growing, flickering):
        entry.mkdir()
        (entry / "a").write_bytes(bytes(1000))

    def change() -> None:
        with (growing / "log").open("ab") as log:
            log.write(b"one line\n")
        (flickering / "b").write_bytes(bytes(1000))
        (flickering / "b").unlink()

    with repeating(change), cluster.source(cache) as source:
        code, done = cluster.fetch(tmp_path / "cold")
    assert code == 0, done
    for name in (FIRST, SECOND):
        assert contents(tmp_path / "cold" / ENTRIES / name) == contents(cache / ENTRIES / name)
    left_out = str(skipped_of(source.ready))
    for entry, files in ((growing, {"a", "log"}), (flickering, {"a"})):
        arrived = tmp_path / "cold" / ENTRIES / entry.name
        assert arrived.exists() != (entry.name in left_out)
        assert not arrived.exists() or files <= set(contents(arrived)) <= {*files, "b"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_unreadable_files_of_another_user(cluster: Cluster) -> None:
    """Published by a user without a passwd entry, and without a way to read all of it."""
    with tempfile.TemporaryDirectory() as directory:  # tmp_path is closed to other users
        home = Path(directory)
        cache = warm_cache(home / "warm")
        (cache / ENTRIES / FIRST / "tuned.bin").chmod(0o600)
        (home / "home").mkdir()
        for path in (home, home / "home"):
            os.chmod(path, 0o755)
            os.chown(path, STRANGER, 0)
        theirs = Cluster(home, {**cluster.env, "HOME": str(home / "home")}, cluster.model)
        options: dict[str, Any] = {"env": theirs.env, "logs": cluster.directory}
        options["command"] = (*as_user.COMMAND, str(STRANGER))
        with running(*theirs.source_args(cache), **options) as source:
            result = source.expect("result")
            with running(*theirs.target_args(home / "cold"), **options) as target:
                code, done = target.end()
            assert source.stop() == 0
        assert code == 0, done
        assert set(contents(home / "cold")) == {
            f"{ENTRIES}/{SECOND}/{name}" for name in ("tuned.bin", "best_config.json")
        }
        assert (home / "cold").stat().st_uid == STRANGER
        (reason,) = skipped_of(result)
        assert "cannot be read" in reason


@pytest.mark.parametrize("what", ["nothing", "empty", "only a lock", "a file"])
def test_a_root_without_a_cache_is_named(cluster: Cluster, tmp_path: Path, what: str) -> None:
    root = tmp_path / "warm"
    if what == "a file":
        root.touch()
    elif what != "nothing":
        root.mkdir()
    if what == "only a lock":
        (root / "x.lock").touch()
    code, error = cluster.publish(root)
    assert (code, error["type"]) == (2, "NothingToPublishError")
    assert str(root) in error["message"]
    assert "--root" in error["hint"]
    assert cluster.sealed() == []
