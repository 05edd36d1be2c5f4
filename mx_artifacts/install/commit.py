"""Moves a staged tree into its root, and takes that back.

This order makes a crash harmless: write the journal, move, write the receipt (the commit point),
remove the journal, remove the entries that were moved aside. `recover_root` completes or takes back
an install, wherever it stopped: after success, after an exception or after kill -9, in the same
way.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mx_artifacts.errors import RollbackFailedError, UnsafePathError
from mx_artifacts.filesystem.access import Access
from mx_artifacts.filesystem.beneath import Directory
from mx_artifacts.filesystem.busy import retried
from mx_artifacts.filesystem.files import make_parents, place_directory
from mx_artifacts.filesystem.rename import exchange, rename_new
from mx_artifacts.filesystem.resolved_path import is_open_to_others
from mx_artifacts.install.journal import (
    EmptyRoot,
    Journal,
    Move,
    is_committed,
    load_journal,
    save_journal,
)
from mx_artifacts.install.plan import Plan, plan_entries, plan_whole
from mx_artifacts.install.receipts.voucher import withdraw
from mx_artifacts.install.staging.staging import StagedTree
from mx_artifacts.install.workspace.entries import ancestors
from mx_artifacts.install.workspace.workspace import (
    JOURNAL_NAME,
    OLD,
    STAGING,
    TREE,
    Workspace,
)
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

    def commit(self, workspace: Workspace, staged: StagedTree) -> Outcome:
        """Journal the moves, then make them. On any exception the caller must `recover_root`.

        An entry that another program creates meanwhile is kept, like an existing entry.

        Raises:
            UnsafePathError: the path to an entry contains a link; nothing was moved.
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
        with workspace.root_if_any() as there:
            plan = plan_entries(there, staged, self.replace)
        self._write_journal(workspace, staged, plan)
        moved = self._move_entries(workspace, staged, plan)
        kept = (*plan.kept, *(move.entry for move in plan.moves if move.entry not in moved))
        directories = tuple(plan.new_directories)
        return Outcome(frozenset(moved), tuple(sorted(kept)), plan.blocked, directories)

    def _write_journal(self, workspace: Workspace, staged: StagedTree, plan: Plan) -> None:
        journal = Journal(
            staged=staged.place.name,
            receipt=str(self.receipt),
            moves=tuple(plan.moves),
            new_directories=tuple(plan.new_directories),
            empty_root=plan.empty_root,
        )
        retried(lambda: save_journal(workspace.held, journal))
        self.events(MovesJournaled(str(workspace.root), len(journal.moves)))

    def _move_whole(self, workspace: Workspace, staged: StagedTree, plan: Plan) -> bool:
        """Rename the tree onto the root; False when it must go in entry by entry after all."""
        source, above, name = staged.place.held, workspace.above, workspace.root.name
        try:
            if plan.empty_root is None:
                rename_new(source.descriptor, TREE, above.descriptor, name)
            else:  # rename(2) replaces an empty directory, and refuses any other
                os.rename(TREE, name, src_dir_fd=source.descriptor, dst_dir_fd=above.descriptor)
        except OSError:
            with workspace.root_if_any() as root:
                if root is not None:  # made or filled meanwhile, or a lower overlay layer's
                    return False
            raise
        above.sync()
        self.events(EntryMoved(str(workspace.root), entry=""))
        return True

    def _move_entries(self, workspace: Workspace, staged: StagedTree, plan: Plan) -> set[str]:
        """Move entries in; return those that took their place."""
        moved: set[str] = set()
        if not plan.moves:
            return moved
        access, place = workspace.access(), staged.place.held
        with ExitStack() as stack:
            root = stack.enter_context(workspace.open_root())
            old = stack.enter_context(workspace.enter(OLD))
            for index, move in enumerate(plan.moves):
                aside = Aside(old, _aside_name(staged.place.name, index))
                make_parents(root, move.entry, access, place)
                if retried(partial(_move_in, place, root, move, aside)):
                    moved.add(move.entry)
                self.events(EntryMoved(str(workspace.root), move.entry))
            _make_durable(root, moved)
        return moved


@dataclass(frozen=True)
class Aside:
    """Where something is moved to that is in the way."""

    directory: Directory
    name: str


def recover_root(workspace: Workspace, *, is_done: bool = False) -> bool:
    """Take back what an install without receipt has moved, then remove all that is left of it.

    `is_done`: the receipt is known to be there. Only under the root's lock. Returns whether
    something was taken back.

    Raises:
        RollbackFailedError: naming what could not be taken back; the journal stays.
        OSError: the journal cannot be read or removed.
    """
    journal = load_journal(workspace.held)
    taken_back = journal is not None and not is_done and not is_committed(journal)
    if journal is not None:
        if taken_back:
            _take_back(workspace, journal)
            withdraw(workspace, Path(journal.receipt))
        workspace.held.remove(JOURNAL_NAME)
        workspace.held.sync()  # before what it speaks of goes
    workspace.sweep()
    return taken_back


def _aside_name(staged_name: str, index: int) -> str:
    return f"{staged_name}.{index}"


def _move_in(place: Directory, root: Directory, move: Move, aside: Aside) -> bool:
    """Move one entry in; False when another is there that may not be replaced."""
    source = f"{TREE}/{move.entry}"
    with root.parent_of(move.entry) as (parent_fd, name):
        try:
            if move.replaces:
                try:
                    if exchange(place.descriptor, source, parent_fd, name):
                        return True  # the old one is now at `source`
                    _set_aside(parent_fd, name, aside)  # a gap that readers may see
                except FileNotFoundError:
                    pass  # its owner removed it meanwhile: ours is new
            rename_new(place.descriptor, source, parent_fd, name)
        except FileExistsError:
            return False
        return True


def _set_aside(parent_fd: int, name: str, aside: Aside) -> None:
    os.rename(name, aside.name, src_dir_fd=parent_fd, dst_dir_fd=aside.directory.descriptor)


def _make_durable(root: Directory, entries: Iterable[str]) -> None:
    """Sync the directories whose names changed: those of the entries, and all above them."""
    for directory in sorted({above for entry in entries for above in ("", *ancestors(entry))}):
        root.sync(directory)


def _take_back(workspace: Workspace, journal: Journal) -> None:
    undo = _TakingBack(workspace, journal)
    numbered = reversed(list(enumerate(journal.moves)))
    results = [undo.try_move_back(index, move) for index, move in numbered]
    problems = [problem for problem in results if problem is not None]
    remove_emptied(workspace, journal.new_directories)
    if problems:
        raise RollbackFailedError(
            f"an install into {workspace.root} could not be taken back: {'; '.join(problems)}",
            hint=f"remove {workspace.root} and {workspace.directory}, and install again",
        )


@dataclass(frozen=True)
class _TakingBack:
    workspace: Workspace
    journal: Journal

    def try_move_back(self, index: int, move: Move) -> str | None:
        """Undo one move; return what prevents it, if anything does."""
        try:
            self._move_back(index, move)
        except (FileNotFoundError, NotADirectoryError):
            return None  # the directory it was in is gone, and the entry with it
        except (OSError, UnsafePathError) as error:
            return f"{self.workspace.root / move.entry}: {error}"
        return None

    def _move_back(self, index: int, move: Move) -> None:
        """Undo one move, if it happened, and if what is there is still what was moved in."""
        with ExitStack() as stack:
            old = stack.enter_context(self.workspace.enter(OLD))
            aside = Aside(old, _aside_name(self.journal.staged, index))
            if move.entry:
                root = stack.enter_context(self.workspace.open_root())
                parent_fd, name = stack.enter_context(root.parent_of(move.entry))
            else:
                parent_fd, name = self.workspace.above.descriptor, self.workspace.root.name
            held = self._held(stack, move, aside)
            current = _inode_in(parent_fd, name)
            if current == move.inode:
                if held is not None and exchange(*held, parent_fd, name):
                    return
                _set_aside(parent_fd, name, Aside(old, f"{aside.name}.new"))
                current = None
            if current is not None:
                return  # never moved in, or replaced by its engine since
            if held is not None:
                os.rename(held[1], name, src_dir_fd=held[0], dst_dir_fd=parent_fd)
            elif self.journal.empty_root is not None:
                self._make_empty_root(self.journal.empty_root)

    def _held(self, stack: ExitStack, move: Move, aside: Aside) -> tuple[int, str] | None:
        """Return where what the move replaced is now: a directory's descriptor, and a name."""
        if aside.directory.inode_of(aside.name) not in (None, move.inode):
            return aside.directory.descriptor, aside.name
        path = f"{STAGING}/{self.journal.staged}/{TREE}"
        try:
            with suppress(UnsafePathError):
                tree = stack.enter_context(
                    self.workspace.enter(path)
                    if move.entry
                    else self.workspace.enter(path.rpartition("/")[0])
                )
                parent_fd, name = stack.enter_context(tree.parent_of(move.entry or TREE))
                if _inode_in(parent_fd, name) not in (None, move.inode):
                    return parent_fd, name
        except (FileNotFoundError, NotADirectoryError):
            pass
        return None

    def _make_empty_root(self, empty: EmptyRoot) -> None:
        """Make the directory again that the root was; what it was is believed only of ourselves."""
        workspace, above = self.workspace, self.workspace.above
        is_ours = not is_open_to_others(workspace.held.status())
        access = Access.of(above.status())

        def apply(descriptor: int) -> None:
            found = os.fstat(descriptor)
            if not is_ours:
                access.apply(descriptor)
                return
            if (found.st_uid, found.st_gid) != (empty.uid, empty.gid):
                os.fchown(descriptor, empty.uid, empty.gid)
            os.fchmod(descriptor, stat.S_IMODE(empty.mode))

        with self.workspace.enter(STAGING) as staging:
            name, workshop = staging.make_private("again-")
            with workshop:
                place_directory(above.descriptor, workspace.root.name, apply, workshop)
            staging.remove_tree(name)


def _inode_in(parent_fd: int, name: str) -> int | None:
    try:
        return os.stat(name, dir_fd=parent_fd, follow_symlinks=False).st_ino
    except FileNotFoundError:
        return None


def remove_emptied(workspace: Workspace, directories: Collection[str]) -> None:
    """Remove directories of a root ("": itself), inner ones first, unless something is in them.

    A directory that another program uses by now, or that was never created, stays as it is.
    """
    with suppress(OSError, UnsafePathError), workspace.open_root() as root:
        for directory in sorted(directories, reverse=True):
            if directory:
                remove_if_empty(root, directory)
    if "" in directories:
        with suppress(OSError):
            os.rmdir(workspace.root.name, dir_fd=workspace.above.descriptor)


def remove_if_empty(root: Directory, directory: str) -> None:
    """Remove a directory below `root` unless something is in it."""
    with suppress(OSError, UnsafePathError), root.parent_of(directory) as (parent_fd, name):
        os.rmdir(name, dir_fd=parent_fd)
