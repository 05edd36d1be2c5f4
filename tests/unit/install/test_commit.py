"""Moves into a root, and back: whatever step an installer stops at, the root is one or the other.

Here it stops by an exception before or after every rename; tests/faults kills processes.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from mx_artifacts.bundle.rules import first_parts
from mx_artifacts.errors import RollbackFailedError, UnsafePathError
from mx_artifacts.filesystem import busy, rename
from mx_artifacts.install import commit as commit_module
from mx_artifacts.install.base import RootInstall
from mx_artifacts.install.commit import Committer, Outcome, recover_root
from mx_artifacts.install.journal import load_journal
from mx_artifacts.install.recover import take_back_unfinished, unfinished_install
from mx_artifacts.install.staging.staging import Staging
from mx_artifacts.install.workspace.opening import open_workspace
from mx_artifacts.observability.catalogue import EntryMoved, MovesJournaled
from mx_artifacts.observability.events import Event, ignore_events
from mx_artifacts.runtime.clock import FakeClock
from tests.support.install_cases import (
    NEW,
    OLD,
    Picture,
    contents,
    fill,
    leftovers,
    make_bundle,
    picture,
    stage,
    workspace_of,
)

RECEIPT = "20200101T000000Z-abababababab.json"
REPLACED = {**NEW, "mine/kernel.so": OLD["mine/kernel.so"]}
COMPLETED = {**OLD, **{name: NEW[name] for name in NEW if name.startswith("k2/")}}
"""The root of OLD when only what it lacks was moved in: entries are kept as a whole."""


class StopHere(BaseException):
    """Ends an installer where it is, as a kill does: nothing of the product expects it."""


class World:
    """A root, a bundle that was staged for it, and an installer that a test can stop."""

    def __init__(self, root: Path, bundle: Path, *, replace: bool = False) -> None:
        self.root = root
        self.replace = replace
        self.events: list[Event] = []
        self.on_event: Callable[[Event], None] = ignore_events
        self.staging: Staging = stage(RootInstall("", root, first_parts(1)), bundle)
        self.staged = self.staging.prepare(replaces=replace)
        self.workspace = open_workspace(root)
        self.receipt = self.workspace.receipts / RECEIPT

    def _emit(self, event: Event) -> None:
        self.events.append(event)
        self.on_event(event)

    def commit(self) -> Outcome:
        committer = Committer(self.receipt, self.replace, self._emit)
        return committer.commit(self.workspace, self.staged)

    def close(self) -> None:
        self.workspace.close()
        self.staging.close()

    def die(self) -> None:
        """Let go of everything, as a process that was killed: nothing is removed."""
        self.workspace.close()
        self.staging._writer.close()
        self.staging._place.held.close()
        self.staging.workspace.close()


@pytest.fixture
def new_world(tmp_path: Path) -> Iterator[Callable[..., World]]:
    bundle = make_bundle(tmp_path / "artifact.tar", NEW)
    worlds: list[World] = []

    def make(before: dict[str, bytes] | None, **options: Any) -> World:
        root = tmp_path / "root"
        if before is not None:
            fill(root, before)
        worlds.append(World(root, bundle, **options))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


def recovered_anew(root: Path) -> bool:
    """Recover as the next installer does, which knows nothing of the first."""
    with closing(open_workspace(root)) as workspace:
        return recover_root(workspace)


# --- all goes well -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "replace", "after", "outcome"),
    [
        (None, False, NEW, Outcome(frozenset({"k1", "k2", "k3"}), (), {}, ("",))),
        ({}, False, NEW, Outcome(frozenset({"k1", "k2", "k3"}), (), {}, ())),
        (OLD, False, COMPLETED, Outcome(frozenset({"k2"}), ("k1", "k3"), {}, ())),
        (OLD, True, REPLACED, Outcome(frozenset({"k1", "k2", "k3"}), (), {}, ())),
    ],
)
def test_entries_are_moved_and_reported(
    new_world: Callable[..., World],
    before: dict[str, bytes] | None,
    replace: bool,
    after: dict[str, bytes],
    outcome: Outcome,
) -> None:
    world = new_world(before, replace=replace)
    assert world.commit() == outcome
    assert contents(world.root) == after
    world.receipt.touch()
    assert recover_root(world.workspace) is False, "with its receipt it is done"
    assert contents(world.root) == after
    world.close()
    assert leftovers(world.root) == []


def test_the_journal_is_there_before_the_first_move_and_names_all(
    new_world: Callable[..., World],
) -> None:
    world = new_world(OLD, replace=True)
    seen: list[tuple[str, dict[str, bytes]]] = []

    def look(event: Event) -> None:
        journal = load_journal(world.workspace.held)
        assert journal is not None
        assert [move.entry for move in journal.moves] == ["k1", "k2", "k3"]
        assert [move.replaces for move in journal.moves] == [True, False, True]
        seen.append((event.name, contents(world.root)))

    world.on_event = look
    world.commit()
    assert seen[0] == (MovesJournaled.name, OLD)
    assert [event for event in world.events if isinstance(event, EntryMoved)] == [
        EntryMoved(str(world.root), entry) for entry in ("k1", "k2", "k3")
    ]


# --- it stops somewhere --------------------------------------------------------------------------


class Stopper:
    """Stops an installer at its n-th rename, before or after it; the journal's own counts too."""

    def __init__(self, patches: pytest.MonkeyPatch, stop_at: int, *, is_after: bool) -> None:
        self.count = 0
        self._stop_at = stop_at
        self._is_after = is_after
        for name in ("rename_new", "exchange"):
            patches.setattr(commit_module, name, self._wrap(getattr(rename, name)))
        patches.setattr(os, "rename", self._wrap(os.rename))

    def _wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            self.count += 1
            is_here = self.count == self._stop_at
            if is_here and not self._is_after:
                raise StopHere
            result = function(*arguments, **options)
            if is_here:
                raise StopHere
            return result

        return wrapped


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("before", [None, {}, OLD])
@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("can_exchange", [False, True])
def test_wherever_it_stops_without_a_receipt_the_root_is_as_it_was(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: dict[str, bytes] | None,
    replace: bool,
    is_after: bool,
    can_exchange: bool,
) -> None:
    if not can_exchange:  # as on NFS
        monkeypatch.setattr(rename, "_renameat2", None)
    bundle = make_bundle(tmp_path / "artifact.tar", NEW)
    for stop_at in range(1, 50):
        root = tmp_path / str(stop_at) / "root"
        root.parent.mkdir()
        if before is not None:
            fill(root, before)
        was = picture(root)
        world = World(root, bundle, replace=replace)
        has_ended = False
        with pytest.MonkeyPatch.context() as patches:
            Stopper(patches, stop_at, is_after=is_after)
            with suppress(StopHere):
                world.commit()
                has_ended = True
        has_journal = world.workspace.journal.exists()
        world.die()
        assert recovered_anew(root) == has_journal
        assert picture(root) == was
        assert not recovered_anew(root), "a second time there is nothing to do"
        assert leftovers(root) == []
        if has_ended:
            break
    assert has_ended
    assert stop_at > 2, "it was stopped at the journal and at one move at least"


def test_one_that_stopped_after_its_receipt_is_done(new_world: Callable[..., World]) -> None:
    world = new_world(OLD, replace=True)
    world.commit()
    world.receipt.write_text("{}")
    world.die()
    assert not recovered_anew(world.root)
    assert contents(world.root) == REPLACED
    assert leftovers(world.root) == []


# --- others act meanwhile ------------------------------------------------------------------------


def after_journal(act: Callable[[], object]) -> Callable[[Event], None]:
    def on_event(event: Event) -> None:
        if isinstance(event, MovesJournaled):
            act()

    return on_event


def test_an_entry_that_an_engine_put_there_meanwhile_is_not_taken_back(
    new_world: Callable[..., World],
) -> None:
    world = new_world({"mine": b"1"})
    world.on_event = after_journal(lambda: fill(world.root, {"k2/kernel.json": b"the engine's"}))
    outcome = world.commit()
    assert outcome.installed == {"k1", "k3"}
    assert outcome.kept == ("k2",)
    assert recover_root(world.workspace)
    assert contents(world.root) == {"mine": b"1", "k2/kernel.json": b"the engine's"}


def test_an_entry_that_an_engine_replaced_after_the_move_is_not_taken_back(
    new_world: Callable[..., World],
) -> None:
    """Whatever stands there is no longer what was moved in."""
    world = new_world({"k3": b"old k3"}, replace=True)
    world.commit()
    fill(world.root, {"k3.tmp": b"the engine's"})
    (world.root / "k3.tmp").replace(world.root / "k3")
    assert recover_root(world.workspace)
    assert contents(world.root) == {"k3": b"the engine's"}


def test_an_entry_that_was_removed_after_the_move_is_not_made_again_by_taking_back(
    new_world: Callable[..., World],
) -> None:
    world = new_world({"mine": b"1"})
    world.commit()
    (world.root / "k3").unlink()
    assert recover_root(world.workspace)
    assert contents(world.root) == {"mine": b"1"}


def test_a_root_that_is_filled_meanwhile_is_filled_entry_by_entry(
    new_world: Callable[..., World],
) -> None:
    world = new_world({})
    mine = {"k1/kernel.so": b"the engine's", "own": b"2"}

    def act(event: Event) -> None:
        if isinstance(event, MovesJournaled) and event.moves == 1:
            fill(world.root, mine)

    world.on_event = act
    outcome = world.commit()
    assert (outcome.installed, outcome.kept) == (frozenset({"k2", "k3"}), ("k1",))
    assert recover_root(world.workspace)
    assert contents(world.root) == mine


def test_directories_made_on_the_way_are_removed_unless_something_else_is_in_them(
    tmp_path: Path,
) -> None:
    bundle = make_bundle(tmp_path / "artifact.tar", {"a/b/x": b"1", "c/d/x": b"2"})
    root = fill(tmp_path / "root", {"mine": b"1"})
    staging = stage(RootInstall("", root, first_parts(3)), bundle)
    workspace = open_workspace(root)
    try:
        committer = Committer(workspace.receipts / RECEIPT, False, ignore_events)
        outcome = committer.commit(workspace, staging.prepare())
        assert set(outcome.made) == {"a", "a/b", "c", "c/d"}
        (root / "c" / "own").write_bytes(b"the engine's")
        assert recover_root(workspace)
    finally:
        workspace.close()
        staging.close()
    assert contents(root) == {"mine": b"1", "c/own": b"the engine's"}
    assert not (root / "a").exists()
    assert not (root / "c/d").exists()


# --- it cannot go on -----------------------------------------------------------------------------


def test_a_link_on_the_way_to_an_entry_is_refused_before_anything_moves(
    tmp_path: Path,
) -> None:
    bundle = make_bundle(tmp_path / "artifact.tar", {"a/b": b"1", "c/d": b"2"})
    root = fill(tmp_path / "root", {"mine": b"1"})
    elsewhere = fill(tmp_path / "elsewhere", {})
    staging = stage(RootInstall("", root, first_parts(2)), bundle)
    staged = staging.prepare()
    (root / "c").symlink_to(elsewhere)
    workspace = open_workspace(root)
    try:
        with pytest.raises(UnsafePathError):
            Committer(workspace.receipts / RECEIPT, False, ignore_events).commit(workspace, staged)
        assert not recover_root(workspace)
    finally:
        workspace.close()
        staging.close()
    assert contents(root) == {"mine": b"1"}
    assert contents(elsewhere) == {}


def test_the_error_names_entries_that_cannot_be_taken_back_and_a_later_run_can(
    new_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = new_world(OLD, replace=True)
    world.commit()
    was_there = picture(world.root)
    with monkeypatch.context() as patches:

        def refuse(*_arguments: object) -> bool:
            raise OSError(errno.EIO, "Input/output error")

        patches.setattr(commit_module, "exchange", refuse)
        with pytest.raises(RollbackFailedError, match=r"root/k3: .*; .*root/k1: ") as caught:
            recover_root(world.workspace)
    assert str(world.root) in caught.value.hint()
    assert load_journal(world.workspace.held) is not None
    assert picture(world.root) != was_there, "k2, which is new, is taken back all the same"
    assert "k2/kernel.json" not in contents(world.root)
    assert recover_root(world.workspace)
    assert contents(world.root) == OLD


def test_a_move_that_fails_for_a_moment_is_made_again(
    new_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = new_world({"mine": b"1"})
    failures = [OSError(errno.ESTALE, "Stale file handle")]

    def flaky(*arguments: Any) -> None:
        if failures:
            raise failures.pop()
        rename.rename_new(*arguments)

    monkeypatch.setattr(busy, "_PAUSES_SECONDS", (0.0,))
    monkeypatch.setattr(commit_module, "rename_new", flaky)
    assert world.commit().installed == {"k1", "k2", "k3"}
    assert failures == []


# --- found by others -----------------------------------------------------------------------------


def test_an_unfinished_install_can_be_taken_back_without_a_new_install(
    new_world: Callable[..., World],
) -> None:
    world = new_world(OLD, replace=True)
    was: Picture | None = picture(world.root)
    assert unfinished_install(world.root) is None
    assert take_back_unfinished([world.root], lock_timeout_seconds=0, clock=FakeClock()) == []
    world.commit()
    world.die()
    assert unfinished_install(world.root) == workspace_of(world.root) / "journal.json"
    taken = take_back_unfinished([world.root], lock_timeout_seconds=0, clock=FakeClock())
    assert taken == [world.root]
    assert picture(world.root) == was
    assert unfinished_install(world.root) is None
    assert not workspace_of(world.root).exists()


def test_a_finished_install_is_not_taken_back(new_world: Callable[..., World]) -> None:
    world = new_world(OLD, replace=True)
    world.commit()
    world.receipt.write_text("{}")
    world.die()
    assert unfinished_install(world.root) is None
    assert take_back_unfinished([world.root], lock_timeout_seconds=0, clock=FakeClock()) == []
    assert contents(world.root) == REPLACED


def test_a_root_without_a_workspace_is_left_alone(tmp_path: Path) -> None:
    root = fill(tmp_path / "root", OLD)
    for path in (root, tmp_path / "absent"):
        assert unfinished_install(path) is None
        assert take_back_unfinished([path], lock_timeout_seconds=0, clock=FakeClock()) == []
    assert sorted(os.listdir(tmp_path)) == ["root"]
