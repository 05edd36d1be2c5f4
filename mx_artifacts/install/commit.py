"""Move a staged tree into its root, and take that back.

The order that makes a crash harmless: journal, moves, receipt (the commit point), journal removed,
what was moved aside removed. `settle` brings a root to rest from wherever an installer stopped,
whether by success, by an exception or by kill -9: one way for all three.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from mx_artifacts.errors import RollbackFailedError, UnsafePathError
from mx_artifacts.filesystem.access import Access
from mx_artifacts.filesystem.files import fsync_directory, inode_of, open_parent
from mx_artifacts.filesystem.rename import exchange, rename_new
from mx_artifacts.install.journal import Journal, Move, load_journal, save_journal
from mx_artifacts.install.plan import Plan, plan_entries, plan_whole
from mx_artifacts.install.staging.staging import StagedTree
from mx_artifacts.install.workspace.entries import ancestors
from mx_artifacts.install.workspace.workspace import Workspace
from mx_artifacts.observability.catalogue import EntryMoved, MovesJournaled
from mx_artifacts.observability.events import EventSink


@dataclass(frozen=True)
class Outcome:
    """What became of a staged tree's entries; `made`: as in `RootReceipt`."""

    installed: frozenset[str]
    kept: tuple[str, ...]
    blocked: dict[str, str]
    made: tuple[str, ...] = ()


@dataclass(frozen=True)
class Committer:
    """Moves trees into roots on behalf of one install, whose receipt will be `receipt`."""

    receipt: Path
    replace: bool
    events: EventSink

    def commit(self, workspace: Workspace, staged: StagedTree, access: Access) -> Outcome:
        """Journal the moves, then make them. On any exception the caller must `settle`.

        An entry that somebody else puts there meanwhile wins, as one that stood there before.

        Raises:
            UnsafePathError: a link stands on the way to an entry; nothing was moved.
            OSError: a move failed.
        """
        plan = plan_whole(workspace, staged)
        if plan is not None:
            self._write_journal(workspace, staged, plan)
            if self._move_whole(workspace, staged, plan):
                entries = frozenset(entry.entry for entry in staged.entries)
                above = sorted({above for entry in entries for above in ancestors(entry)})
                root = ("",) if plan.empty_root is None else ()
                return Outcome(entries, (), {}, (*root, *above))
        plan = plan_entries(workspace, staged, self.replace)
        self._write_journal(workspace, staged, plan)
        moved = set()
        for index, move in enumerate(plan.moves):
            source = staged.directory / move.entry
            aside = _aside(workspace, staged.directory.name, index)
            with open_parent(workspace.root, move.entry, create=access) as (parent_fd, name):
                if _move(source, parent_fd, name, move, aside):
                    moved.add(move.entry)
            self.events(EntryMoved(str(workspace.root), move.entry))
        _make_durable(workspace.root, moved)
        kept = (*plan.kept, *(move.entry for move in plan.moves if move.entry not in moved))
        directories = tuple(plan.new_directories)
        return Outcome(frozenset(moved), tuple(sorted(kept)), plan.blocked, directories)

    def _write_journal(self, workspace: Workspace, staged: StagedTree, plan: Plan) -> None:
        journal = Journal(
            staged=staged.directory.name,
            receipt=str(self.receipt),
            moves=tuple(plan.moves),
            new_directories=tuple(plan.new_directories),
            empty_root=plan.empty_root,
        )
        save_journal(workspace.journal, journal)
        self.events(MovesJournaled(str(workspace.root), len(journal.moves)))

    def _move_whole(self, workspace: Workspace, staged: StagedTree, plan: Plan) -> bool:
        """Rename the tree onto the root; False when it must go in entry by entry after all."""
        with open_parent(workspace.root, "") as (parent_fd, name):
            try:
                if plan.empty_root is None:
                    rename_new(staged.directory, parent_fd, name)
                else:  # rename(2) replaces an empty directory, and refuses any other
                    os.rename(staged.directory, name, dst_dir_fd=parent_fd)
            except OSError:
                if workspace.root.is_dir():  # made or filled meanwhile, or a lower overlay layer's
                    return False
                raise
        fsync_directory(workspace.root.parent)
        self.events(EntryMoved(str(workspace.root), entry=""))
        return True


def settle(workspace: Workspace) -> bool:
    """Take back what an install without receipt has moved, then remove all that is left of it.

    Only under the root's lock. Returns whether something was taken back.

    Raises:
        RollbackFailedError: naming what could not be taken back; the journal stays.
        OSError: the journal cannot be read or removed.
    """
    journal = load_journal(workspace.journal)
    taken_back = journal is not None and not os.path.exists(journal.receipt)
    if journal is not None:
        if taken_back:
            _take_back(workspace, journal)
        workspace.journal.unlink()
        fsync_directory(workspace.directory)  # before what it speaks of goes
    workspace.sweep()
    return taken_back


def _aside(workspace: Workspace, staged_name: str, index: int) -> Path:
    return workspace.old / f"{staged_name}.{index}"


def _move(source: Path, parent_fd: int, name: str, move: Move, aside: Path) -> bool:
    """Move one entry in; False when another stands there that may not be replaced."""
    try:
        if move.replaces:
            try:
                if exchange(source, parent_fd, name):  # the old one is now at `source`
                    return True
                os.rename(name, aside, src_dir_fd=parent_fd)  # a gap that readers may see
            except FileNotFoundError:
                pass  # its owner removed it meanwhile: ours is new
        rename_new(source, parent_fd, name)
    except FileExistsError:
        return False
    return True


def _make_durable(root: Path, entries: set[str]) -> None:
    """Sync the directories whose names changed: those of the entries, and all above them."""
    above = {str(parent) for entry in entries for parent in Path(entry).parents}
    for directory in sorted(above):
        fsync_directory(root / directory)


def _take_back(workspace: Workspace, journal: Journal) -> None:
    numbered = reversed(list(enumerate(journal.moves)))
    results = [_try_move_back(workspace, journal, index, move) for index, move in numbered]
    problems = [problem for problem in results if problem is not None]
    for directory in reversed(journal.new_directories):
        remove_if_empty(workspace.root, directory)
    if problems:
        raise RollbackFailedError(
            f"an install into {workspace.root} could not be taken back: {'; '.join(problems)}",
            hint=f"remove {workspace.root} and {workspace.directory}, and install again",
        )


def _try_move_back(workspace: Workspace, journal: Journal, index: int, move: Move) -> str | None:
    """Undo one move; return what prevents it, if anything does."""
    try:
        _move_back(workspace, journal, index, move)
    except (OSError, UnsafePathError) as error:
        return f"{workspace.root / move.entry}: {error}"
    return None


def _move_back(workspace: Workspace, journal: Journal, index: int, move: Move) -> None:
    """Undo one move, if it happened, and if what stands there is still what was moved in."""
    aside = _aside(workspace, journal.staged, index)
    staged = workspace.staging / journal.staged / move.entry
    held = next((p for p in (aside, staged) if inode_of(p) not in (None, move.inode)), None)
    try:
        with open_parent(workspace.root, move.entry) as (parent_fd, name):
            current = inode_of(name, dir_fd=parent_fd)
            if current == move.inode:
                if held is not None and exchange(held, parent_fd, name):
                    return
                os.rename(name, aside.with_name(f"{aside.name}.new"), src_dir_fd=parent_fd)
                current = None
            if current is not None:
                return  # never moved in, or replaced by its engine since
            if held is not None:
                os.rename(held, name, dst_dir_fd=parent_fd)
            elif journal.empty_root is not None:
                _make_empty_root(workspace.root, journal)
    except (FileNotFoundError, NotADirectoryError):
        return  # the directory it was in is gone, and the entry with it


def _make_empty_root(root: Path, journal: Journal) -> None:
    assert journal.empty_root is not None
    root.mkdir()
    found = root.stat()
    if (found.st_uid, found.st_gid) != (journal.empty_root.uid, journal.empty_root.gid):
        os.chown(root, journal.empty_root.uid, journal.empty_root.gid)
    root.chmod(journal.empty_root.mode)


def remove_if_empty(root: Path, directory: str) -> None:
    """Remove a directory below `root` ("": itself) unless something is in it."""
    try:
        with open_parent(root, directory) as (parent_fd, name):
            os.rmdir(name, dir_fd=parent_fd)
    except (OSError, UnsafePathError):
        pass  # somebody else uses it by now, or it was never made
