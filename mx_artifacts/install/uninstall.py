"""Take an install back: exactly what its receipt says, and only what is still so.

Whole entries are moved aside by one rename each, so a reader sees an entry or none. Killed at any
point, a second run completes: what is gone is done, and the receipt goes last.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mx_artifacts.errors import ConfigurationError, UnsafePathError
from mx_artifacts.filesystem.files import fsync_directory, inode_of, open_parent
from mx_artifacts.filesystem.space import os_errors_translated
from mx_artifacts.install.commit import remove_if_empty, settle
from mx_artifacts.install.receipts.lookup import UNINSTALLED, claims, newer_than, receipts_beside
from mx_artifacts.install.receipts.receipt import (
    InstalledEntry,
    Receipt,
    RootReceipt,
    load_named_receipt,
    load_receipt,
    save_receipt,
)
from mx_artifacts.install.state.contents import entry_state
from mx_artifacts.install.workspace.acquire import locked_workspaces
from mx_artifacts.install.workspace.entries import ancestors
from mx_artifacts.install.workspace.workspace import Workspace, receipt_directories
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
        removed: those that are gone now.
        kept: those that changed since, and how; the receipt still lists them.
        superseded: those that a later install put there; its receipt lists them.
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
        """True when nothing of the install stands any more."""
        return not any(root.kept for root in self.roots)


def uninstall_artifact(
    receipt_path: Path,
    *,
    force: bool = False,
    lock_timeout_seconds: float,
    clock: Clock = SYSTEM_CLOCK,
    events: EventSink = ignore_events,
) -> UndoReport:
    """Remove what an install put into its roots, and directories that it made and leaves empty.

    An entry of which a file changed since is kept whole, unless `force`: a half of one could be
    worse than either. Files that others put into an entry stay; locks and other litter go with
    it. What an install replaced does not come back. The receipt is renamed to `*.uninstalled`, or
    keeps listing what was kept. Blocks; any thread.

    Raises:
        ConfigurationError: it is no receipt or a damaged one, or a copy somewhere else.
        InstallLockedError: another installer holds a root for longer than `lock_timeout_seconds`.
        InstallError: the operating system refuses something; what was
            removed until then stays removed, and a second run goes on.
    """
    path = Path(os.path.realpath(receipt_path))
    path = path.with_name(path.name.removesuffix(UNINSTALLED))
    receipt = _load(path)
    with os_errors_translated(f"uninstall by {path}"):
        names = [root.root for root in receipt.roots if os.path.lexists(root.root)]
        with locked_workspaces(list(map(Path, names)), lock_timeout_seconds, clock) as held:
            spaces = dict(zip(names, held, strict=True))
            for space in spaces.values():
                settle(space)  # what an installer that was killed left
            if not path.exists():  # undone while the lock was waited for, or before
                return UndoReport(path, receipt.artifact.artifact_id, receipt.artifact.kind, ())
            undo = _Undo(path, load_receipt(path), force, events)
            roots = tuple(undo.root(root, spaces.get(root.root)) for root in undo.receipt.roots)
            undo.retire(roots)
            for space in spaces.values():
                if space.directory.exists():
                    space.sweep()
    return UndoReport(path, receipt.artifact.artifact_id, receipt.artifact.kind, roots)


def _load(path: Path) -> Receipt:
    undone = path.with_name(path.name + UNINSTALLED)
    receipt = load_named_receipt(undone if undone.exists() and not path.exists() else path)
    # Only beside the others does it show what a later install owns by now.
    if path.parent not in receipt_directories(Path(receipt.roots[0].root)):
        raise ConfigurationError(
            f"{path} is not where its root's receipts are",
            hint="fetch-and-install prints where a receipt is; or name the cache with --kind",
        )
    return receipt


@dataclass
class _Undo:
    path: Path
    receipt: Receipt
    force: bool
    events: EventSink
    _aside_count: int = field(default=0, init=False)

    def root(self, root: RootReceipt, workspace: Workspace | None) -> RootUndo:
        if workspace is None:
            return RootUndo(root.root, tuple(e.entry for e in root.installed), {}, ())
        owners = claims(newer_than(receipts_beside(self.path), self.path), root.root)
        removed: list[str] = []
        kept: dict[str, str] = {}
        for entry in root.installed:
            if entry.entry in owners:
                continue
            reason = self._remove(workspace, entry)
            if reason:
                kept[entry.entry] = reason
            else:
                removed.append(entry.entry)
                self.events(EntryRemoved(root.root, entry.entry))
        self._tidy(workspace, root, removed)
        superseded = tuple(e.entry for e in root.installed if e.entry in owners)
        return RootUndo(root.root, tuple(removed), kept, superseded)

    def _remove(self, workspace: Workspace, entry: InstalledEntry) -> str:
        """Remove one entry; return why it is kept, if it is."""
        found = entry_state(workspace.root, entry)
        if found.changed and not self.force:
            return f"changed since: {', '.join(found.changed[:3])}"
        try:
            with open_parent(workspace.root, entry.entry) as (parent_fd, name):
                if stat.S_ISLNK(os.stat(name, dir_fd=parent_fd, follow_symlinks=False).st_mode):
                    return "a symbolic link stands there now"
                if self._is_ours_alone(workspace.root, entry):
                    try:
                        os.rename(name, self._aside(workspace), src_dir_fd=parent_fd)
                        return ""
                    except OSError as error:
                        if error.errno != errno.EXDEV:  # of a lower overlay layer: file by file
                            raise
            for file in entry.files:
                with open_parent(workspace.root, file.path) as (parent_fd, name):
                    if inode_of(name, dir_fd=parent_fd) is not None:
                        os.unlink(name, dir_fd=parent_fd)
            _remove_empty(workspace.root, entry)
        except (FileNotFoundError, NotADirectoryError):
            return ""  # it is gone, or something else stands in its way
        except (UnsafePathError, IsADirectoryError) as error:
            return str(error)
        return ""

    def _is_ours_alone(self, root: Path, entry: InstalledEntry) -> bool:
        ours = {file.path for file in entry.files}
        return all(
            path in ours or matches(path, self._litter) for path in _files(root, entry.entry)
        )

    @property
    def _litter(self) -> tuple[str, ...]:
        try:
            return get_kind(self.receipt.artifact.kind).pack.exclude
        except ConfigurationError:  # of a plug-in that is not here any more
            return NEVER_PACKED

    def _aside(self, workspace: Workspace) -> Path:
        self._aside_count += 1
        directory = tempfile.mkdtemp(dir=workspace.old, prefix="undo-")
        return Path(directory, str(self._aside_count))

    def _tidy(self, workspace: Workspace, root: RootReceipt, removed: Collection[str]) -> None:
        """Remove empty directories that installs made, and make the removals durable."""
        above = {directory for entry in removed for directory in ancestors(entry)}
        made = {
            directory
            for each in receipts_beside(self.path, uninstalled=True)
            for part in each.receipt.roots
            if part.root == root.root
            for directory in part.made
        }
        for directory in sorted(above & made, reverse=True):
            remove_if_empty(workspace.root, directory)
        if "" in made:
            remove_if_empty(workspace.root, "")
        for directory in sorted({"", *above}):
            path = workspace.root / directory
            if path.is_dir():
                fsync_directory(path)
        fsync_directory(workspace.root.parent)

    def retire(self, roots: Collection[RootUndo]) -> None:
        """Write the receipt of what was kept, or set it aside when nothing was."""
        kept = {root.root: root.kept for root in roots}
        if not any(kept.values()):
            self.path.replace(self.path.with_name(self.path.name + UNINSTALLED))
            fsync_directory(self.path.parent)
            return
        remaining = tuple(
            replace(root, installed=tuple(e for e in root.installed if e.entry in kept[root.root]))
            for root in self.receipt.roots
        )
        save_receipt(self.path, replace(self.receipt, roots=remaining))


def _files(root: Path, entry: str) -> Iterator[str]:
    """Yield everything below `entry` that is no directory, or itself; links are not followed."""
    pending = [entry]
    while pending:
        path = pending.pop()
        if (root / path).is_symlink() or not (root / path).is_dir():
            yield path
        else:
            pending.extend(f"{path}/{name}" for name in os.listdir(root / path))


def _remove_empty(root: Path, entry: InstalledEntry) -> None:
    within = {above for file in entry.files for above in ancestors(file.path)}
    for directory in sorted(within, reverse=True):
        if f"{directory}/".startswith(f"{entry.entry}/"):
            remove_if_empty(root, directory)
