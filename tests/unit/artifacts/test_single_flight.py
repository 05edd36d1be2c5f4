"""One transfer a node: processes that want the same take turns, and none waits for ever."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from mx_artifacts.artifacts.bundle_root import sweep, turn_file
from mx_artifacts.artifacts.target.single_flight import turn_to_fetch
from mx_artifacts.observability.events import Event
from mx_artifacts.runtime.clock import SYSTEM_CLOCK, FakeClock


class Node:
    """What processes of one node share, with a clock that never waits."""

    def __init__(self, place: Path) -> None:
        self.bundle_root = place / "bundles"
        self.root = place / "root"
        self.clock = FakeClock()
        self.events: list[Event] = []

    def turn(
        self, artifact_id: str = "a", root: Path | None = None, timeout_seconds: float = 60.0
    ) -> AbstractContextManager[None]:
        return turn_to_fetch(
            self.bundle_root,
            artifact_id,
            [root or self.root],
            timeout_seconds=timeout_seconds,
            clock=self.clock,
            events=self.events.append,
        )


@pytest.fixture(name="node")
def _node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_fetches_of_different_artifacts_or_roots_do_not_wait(node: Node, tmp_path: Path) -> None:
    with node.turn(), node.turn("b"), node.turn(root=tmp_path / "other"):
        assert len(list(node.bundle_root.iterdir())) == 3
    assert list(node.bundle_root.iterdir()) == []
    assert (node.clock.monotonic(), node.events) == (FakeClock().monotonic(), [])


def test_a_short_lock_of_a_process_that_cleans_up_is_not_reported(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    with node.turn():
        (held,) = node.bundle_root.iterdir()
    descriptor = os.open(held, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    monkeypatch.setattr(FakeClock, "sleep", lambda clock, seconds: os.close(descriptor))
    with node.turn():
        assert node.events == []


def test_a_fetch_continues_without_its_turn_after_the_timeout(node: Node, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(node.root)
    with node.turn():
        with node.turn(root=tmp_path / "link"):  # the same root
            assert node.clock.monotonic() == pytest.approx(FakeClock().monotonic() + 60.0)
        assert [event.name for event in node.events] == ["fetch.waiting"]
        with node.turn(timeout_seconds=0.0):
            assert len(node.events) == 1
        assert len(list(node.bundle_root.iterdir())) == 1  # is still held


def test_without_locks_there_is_no_wait(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with node.turn(), node.turn():
        assert node.events == []
        assert list(node.bundle_root.iterdir()) == []


def test_an_error_during_a_turn_is_raised(node: Node) -> None:
    with pytest.raises(OSError, match="full"), node.turn():
        raise OSError("full")
    assert list(node.bundle_root.iterdir()) == []


@contextmanager
def alone(inside: threading.Lock) -> Iterator[None]:
    assert inside.acquire(blocking=False)
    try:
        yield
    finally:
        inside.release()


def test_many_at_once_exclude_each_other(node: Node) -> None:
    node.clock = SYSTEM_CLOCK  # type: ignore[assignment]
    inside = threading.Lock()

    def work(_: int) -> None:
        with node.turn(), alone(inside):
            sweep(node.bundle_root)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(24)))
    assert list(node.bundle_root.iterdir()) == []


def test_the_file_of_a_process_that_died_is_swept_and_a_held_one_is_not(node: Node) -> None:
    node.bundle_root.mkdir()
    held, dead = (turn_file(node.bundle_root, digit * 64) for digit in "01")
    theirs = node.bundle_root / "turn-notes.lock"
    for path in (held, dead, theirs):
        path.touch()
    with held.open("rb") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        sweep(node.bundle_root)
        assert set(node.bundle_root.iterdir()) == {held, theirs}
