"""When roots that are followed are sealed again."""

from __future__ import annotations

from pathlib import Path

import pytest

from mx_artifacts.artifacts.source.watch import RootsWatch
from mx_artifacts.bundle.rules import PackRules
from mx_artifacts.runtime.clock import FakeClock

RULES = PackRules(exclude=("*.lock",))


class Root:
    def __init__(self, path: Path, clock: FakeClock) -> None:
        self.path, self.clock = path, clock
        self.watch = RootsWatch([(path, RULES)], clock=clock)

    def write(self, name: str, size: int = 1) -> None:
        self.path.mkdir(exist_ok=True)
        (self.path / name).write_bytes(b"x" * size)

    def looks(self, count: int, interval_seconds: float = 10) -> list[bool]:
        found = []
        for _ in range(count):
            self.clock.advance(interval_seconds)
            found.append(self.watch.due())
        return found


@pytest.fixture(name="root")
def _root(tmp_path: Path) -> Root:
    root = Root(tmp_path / "cache", FakeClock())
    root.write("a")
    root.watch = RootsWatch([(root.path, RULES)], clock=root.clock)
    return root


def test_a_change_is_due_when_it_has_settled_and_until_it_is_sealed(root: Root) -> None:
    assert root.looks(2) == [False, False]
    root.write("b")
    assert root.looks(3) == [False, True, True]
    root.watch.sealed()
    assert root.looks(2) == [False, False]


def test_changes_of_files_that_are_never_shipped_do_not_count(root: Root) -> None:
    root.write("x.lock")
    assert root.looks(3) == [False, False, False]


def test_a_writer_that_never_settles_is_timed(root: Root) -> None:
    for size in range(2, 7):
        root.write("b", size)
        assert root.looks(1) == [False]
    assert root.watch.unsealed_seconds == 40
    assert root.looks(1) == [True]
    root.watch.sealed()
    assert root.watch.unsealed_seconds == 0


def test_roots_that_had_not_settled_are_sealed_once_more(root: Root) -> None:
    root.watch.sealed(settled=False)
    assert root.looks(2) == [True, True]
    root.watch.sealed()
    assert root.looks(1) == [False]


def test_roots_that_change_while_they_are_sealed_are_sealed_again(root: Root) -> None:
    root.write("b")
    assert root.looks(2) == [False, True]
    root.write("c")
    root.watch.sealed()
    assert root.looks(2) == [False, True]


def test_a_longer_time_to_settle(tmp_path: Path) -> None:
    root = Root(tmp_path / "cache", FakeClock())
    root.watch = RootsWatch([(root.path, RULES)], settle_seconds=25, clock=root.clock)
    assert root.looks(1) == [False]  # and that there is no root at all is no change
    root.write("a")
    assert root.looks(5) == [False, False, False, True, True]
