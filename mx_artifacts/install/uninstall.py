"""Removes an install: exactly the entries of its receipt, and only those that have not changed.

Each entry is moved aside as a whole by one rename, so a reader sees an entry or none. If the
process is killed at any point, a second run completes the work: it skips entries that do not exist
any more, and the receipt is removed last.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from mx_artifacts.errors import ConfigurationError, UnsafePathError
from mx_artifacts.filesystem.beneath import Directory
from mx_artifacts.filesystem.busy import retried
from mx_artifacts.filesystem.resolved_path import is_open_to_others
from mx_artifacts.filesystem.space import os_errors_translated
from mx_artifacts.install.commit import recover_root, remove_emptied, remove_if_empty
from mx_artifacts.install.receipts.believed import check_roots
from mx_artifacts.install.receipts.lookup import UNINSTALLED, claims, newer_than, receipts_in
from mx_artifacts.install.receipts.receipt import (
    InstalledEntry,
    Receipt,
    RootReceipt,
    load_named_receipt,
    load_receipt_in,
    save_receipt,
)
from mx_artifacts.install.receipts.voucher import withdraw
from mx_artifacts.install.state.contents import entry_state
from mx_artifacts.install.workspace.acquire import locked_workspaces
from mx_artifacts.install.workspace.entries import ancestors
from mx_artifacts.install.workspace.opening import receipt_directories
from mx_artifacts.install.workspace.workspace import OLD, Workspace
from mx_artifacts.kinds.base import NEVER_PACKED
from mx_artifacts.kinds.registry import get_kind
from mx_artifacts.kinds.usage_markers import matches
from mx_artifacts.observability.catalogue import EntryRemoved
from mx_artifacts.observability.events import EventSink, ignore_events
from mx_artifacts.runtime.clock import SYSTEM_CLOCK, Clock


@dataclass(frozen=True)
class RootUndo:
    """What happened to the installed entries of one root.

    Attributes:
        removed: entries that were removed.
        kept: entries that changed after the install, and how; the receipt still lists them.
        superseded: entries of a later install, whose receipt lists them.
    """

    root: str
    removed: tuple[str, ...]
    kept: Mapping[str, str]
    superseded: tuple[str, ...]


@dataclass(frozen=True)
class UndoReport:
    """The outcome of `uninstall_artifact`; no roots when it was uninstalled before."""

    receipt_path: Path
    artifact_id: str
    kind: str
    roots: tuple[RootUndo, ...]

    @property
    def is_complete(self) -> bool:
        """True when nothing of the install is left."""
        return not any(root.kept for root in self.roots)


def uninstall_artifact(
    receipt_path: Path,
    *,
    force: bool = False,
    roots: Collection[Path] = (),
    lock_timeout_seconds: float,
    clock: Clock = SYSTEM_CLOCK,
    events: EventSink = ignore_events,
) -> UndoReport:
    """Remove the entries of an install, and the directories that it created if they are empty.

    If a file of an entry changed after the install, the whole entry is kept, unless `force`,
    because a part of an entry could be worse than all or nothing. The same is true if a file has
    another owner than at the install. Files that other programs put into an entry stay; lock files
    and similar files are removed with it. Entries that the install replaced are not restored. The
    receipt is renamed to `*.uninstalled`; if entries were kept, it stays and lists them.

    A receipt is trusted for the root whose workspace it is in, and for further roots that have a
    voucher for it. It is trusted for other roots only if the caller names them in `roots`, or with
    `force`. Blocks; any thread.

    Raises:
        ConfigurationError: it is not a receipt, is damaged or copied, or names a root for which it
            is not trusted.
        InstallLockedError: another installer holds a root for longer than `lock_timeout_seconds`.
        UnsafePathError: another user's link leads to a root.
        InstallError: the operating system refuses something; what was removed until then stays
            removed, and a second run continues.
    """
    path = Path(os.path.realpath(receipt_path))
    path = path.with_name(path.name.removesuffix(UNINSTALLED))
    receipt = _load(path)
    if not force:
        check_roots(path, receipt, roots)
    with os_errors_translated(f"uninstall by {path}"), ExitStack() as stack:
        names = [root.root for root in receipt.roots if os.path.lexists(root.root)]
        held = stack.enter_context(
            locked_workspaces(list(map(Path, names)), lock_timeout_seconds, clock)
        )
        spaces = dict(zip(names, held, strict=True))
        for space in spaces.values():
            recover_root(space)  # what an installer that was killed left
        receipts = _receipts_of(receipt.roots[0], path, stack)
        if not receipts.has(path.name):  # undone while the lock was waited for, or before
            return UndoReport(path, receipt.artifact.artifact_id, receipt.artifact.kind, ())
        again = load_receipt_in(receipts, path.name)
        if [root.root for root in again.roots] != [root.root for root in receipt.roots]:
            raise ConfigurationError(
                f"{path} was changed meanwhile", hint="check the file, and try again"
            )
        undo = _Undo(path, receipts, again, force, events)
        reports = tuple(undo.root(root, spaces.get(root.root)) for root in again.roots)
        undo.retire(reports, spaces)
        for space in spaces.values():
            with suppress(FileNotFoundError):  # it was in a root that is gone now
                space.sweep()
    return UndoReport(path, receipt.artifact.artifact_id, receipt.artifact.kind, reports)


def _load(path: Path) -> Receipt:
    undone = path.with_name(path.name + UNINSTALLED)
    receipt = load_named_receipt(undone if undone.exists() and not path.exists() else path)
    with ExitStack() as stack:
        _receipts_of(receipt.roots[0], path, stack)
    return receipt


def _receipts_of(root: RootReceipt, path: Path, stack: ExitStack) -> Directory:
    """Return the directory of the receipt at `path`, which `stack` closes.

    Only beside the others does it show what a later install owns by now.
    """
    found = stack.enter_context(receipt_directories(Path(root.root)))
    for directory in found:
        if directory.path == path.parent:
            return directory
    raise ConfigurationError(
        f"{path} is not in the directory in which its root keeps receipts",
        hint="state the path that fetch-and-install printed, or name the cache with --kind",
    )


@dataclass
class _Undo:
    path: Path
    receipts: Directory
    receipt: Receipt
    force: bool
    events: EventSink

    def root(self, root: RootReceipt, workspace: Workspace | None) -> RootUndo:
        if workspace is None:
            return RootUndo(root.root, tuple(e.entry for e in root.installed), {}, ())
        owners = claims(newer_than(receipts_in(self.receipts), self.path), root.root)
        mine = [entry for entry in root.installed if entry.entry not in owners]
        kept: dict[str, str] = {}
        with workspace.open_root() as directory, workspace.enter(OLD) as old:
            removal = _Removal(directory, old, self._owners(directory), self._litter, self.force)
            for entry in mine:
                reason = removal.remove(entry)
                if reason:
                    kept[entry.entry] = reason
                else:
                    self.events(EntryRemoved(root.root, entry.entry))
            removed = [entry.entry for entry in mine if entry.entry not in kept]
            self._tidy(workspace, directory, root, removed)
        superseded = tuple(e.entry for e in root.installed if e.entry in owners)
        return RootUndo(root.root, tuple(removed), kept, superseded)

    def _owners(self, root: Directory) -> frozenset[int] | None:
        """Return the users whose files may be removed; None: those of all users.

        If other users can have written the receipt, or can have replaced files, only files of these
        users may be removed: the owner that the install gave to the files, and the writer of the
        receipt. Files of root may be removed only in a root that belongs to root.
        """
        found = root.status()
        if not is_open_to_others(found) and not is_open_to_others(self.receipts.status()):
            return None
        writer = self.receipts.status_of(self.path.name).st_uid
        return frozenset({found.st_uid, *({writer, os.geteuid()} - {0})})

    @property
    def _litter(self) -> tuple[str, ...]:
        try:
            return get_kind(self.receipt.artifact.kind).pack.exclude
        except ConfigurationError:  # of a plug-in that is not here any more
            return NEVER_PACKED

    def _tidy(
        self,
        workspace: Workspace,
        directory: Directory,
        root: RootReceipt,
        removed: Collection[str],
    ) -> None:
        """Remove empty directories that installs made, and make the removals durable."""
        above = {each for entry in removed for each in ancestors(entry)}
        made = {
            each
            for receipt in receipts_in(self.receipts, uninstalled=True)
            for part in receipt.receipt.roots
            if part.root == root.root
            for each in part.made
        }
        remove_emptied(workspace, [*(above & made), *({""} & made)])
        for each in sorted({"", *above}):
            with suppress(FileNotFoundError, NotADirectoryError):
                directory.sync(each)
        workspace.above.sync()

    def retire(self, roots: Collection[RootUndo], spaces: Mapping[str, Workspace]) -> None:
        """Write the receipt of what was kept, or set it aside when nothing was."""
        kept = {root.root: root.kept for root in roots}
        if not any(kept.values()):
            name, directory = self.path.name, self.receipts.descriptor
            within = {"src_dir_fd": directory, "dst_dir_fd": directory}
            os.rename(name, name + UNINSTALLED, **within)
            self.receipts.sync()
            for space in spaces.values():
                withdraw(space, self.path)
            return
        remaining = tuple(
            replace(root, installed=tuple(e for e in root.installed if e.entry in kept[root.root]))
            for root in self.receipt.roots
        )
        save_receipt(self.receipts, self.path.name, replace(self.receipt, roots=remaining))


@dataclass(frozen=True)
class _Removal:
    """Removes entries of a root; files of `owners` only, unless that is None."""

    root: Directory
    old: Directory
    owners: frozenset[int] | None
    litter: tuple[str, ...]
    force: bool

    def remove(self, entry: InstalledEntry) -> str:
        """Remove one entry; return why it is kept, if it is."""
        found = entry_state(self.root, entry)
        if found.changed and not self.force:
            return f"changed since: {', '.join(found.changed[:3])}"
        try:
            foreign = "" if self.owners is None or self.force else self._foreign(entry)
            if foreign:
                return foreign
            return self._remove(entry)
        except (FileNotFoundError, NotADirectoryError):
            return ""  # it is gone, or something else is in its way
        except (UnsafePathError, IsADirectoryError) as error:
            return str(error)

    def _foreign(self, entry: InstalledEntry) -> str:
        """Say that a file of an entry is somebody else's than it was given to, or "" """
        assert self.owners is not None
        for file in entry.files:
            with suppress(FileNotFoundError, NotADirectoryError):
                owner = self.root.status_of(file.path).st_uid
                if owner not in self.owners:
                    return f"{file.path} belongs to user {owner} now"
        return ""

    def _remove(self, entry: InstalledEntry) -> str:
        with self.root.parent_of(entry.entry) as (parent_fd, name):
            if stat.S_ISLNK(os.stat(name, dir_fd=parent_fd, follow_symlinks=False).st_mode):
                return "a symbolic link is there now"
            if self._is_ours_alone(entry) and self._move_aside(parent_fd, name):
                return ""
        for file in entry.files:
            with suppress(FileNotFoundError):
                self.root.remove(file.path)
        self._remove_empty(entry)
        return ""

    def _move_aside(self, parent_fd: int, name: str) -> bool:
        aside = f"undo-{secrets.token_hex(8)}"
        within = {"src_dir_fd": parent_fd, "dst_dir_fd": self.old.descriptor}
        try:
            retried(lambda: os.rename(name, aside, **within))
        except OSError as error:
            if error.errno != errno.EXDEV:  # of a lower overlay layer: file by file
                raise
            return False
        return True

    def _is_ours_alone(self, entry: InstalledEntry) -> bool:
        ours = {file.path for file in entry.files}
        return all(
            path in ours or matches(path, self.litter) for path in _files(self.root, entry.entry)
        )

    def _remove_empty(self, entry: InstalledEntry) -> None:
        within = {above for file in entry.files for above in ancestors(file.path)}
        for directory in sorted(within, reverse=True):
            if f"{directory}/".startswith(f"{entry.entry}/"):
                remove_if_empty(self.root, directory)


def _files(root: Directory, entry: str) -> Iterator[str]:
    """Yield everything below `entry` that is no directory, or itself; links are not followed."""
    pending = [entry]
    while pending:
        path = pending.pop()
        if stat.S_ISDIR(root.status_of(path).st_mode):
            pending.extend(f"{path}/{name}" for name in root.names(path))
        else:
            yield path
