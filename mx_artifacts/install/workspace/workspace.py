"""Where the staging area, lock, journal and receipts of one cache root live.

Moves into a root must be renames, so the workspace is on the root's file system: beside the
root as `.mx-artifacts.<root name>`, or within it as `.mx-artifacts`. No bundle has either of them
(`kinds.base.NEVER_PACKED`).
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mx_artifacts.errors import UnsafePathError, UnusablePlaceError
from mx_artifacts.filesystem.access import DIRECTORY_MODE, Access
from mx_artifacts.filesystem.files import inode_of, remove_tree
from mx_artifacts.filesystem.writable import check_place, name_max_bytes
from mx_artifacts.node.mounts import mount_table

logger = logging.getLogger(__name__)

PREFIX = ".mx-artifacts"
"""First letters of every name this package makes in or beside a root; no entry may use them."""
JOURNAL_NAME = "journal.json"
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Workspace:
    """The workspace of one root; `root` is resolved. Paths only: nothing here takes the lock."""

    root: Path
    directory: Path

    @property
    def lock(self) -> Path:
        return self.directory / "lock"

    @property
    def journal(self) -> Path:
        return self.directory / JOURNAL_NAME

    @property
    def staging(self) -> Path:
        return self.directory / "staging"

    @property
    def old(self) -> Path:
        """What was moved aside; kept until the receipt is durable."""
        return self.directory / "old"

    @property
    def receipts(self) -> Path:
        return self.directory / "receipts"

    @property
    def is_inside(self) -> bool:
        return self.directory.parent == self.root

    def new_staging_directory(self) -> tuple[Path, int]:
        """Make an empty directory with a fresh name below `staging`, and hold it.

        Others let it be while its descriptor, which is returned too, is open anywhere.
        Raises FileNotFoundError when the workspace is being removed.
        """
        path = Path(tempfile.mkdtemp(dir=self.staging, prefix=f"{os.getpid()}-"))
        descriptor = os.open(path, _OPEN_DIRECTORY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if inode_of(path) != os.fstat(descriptor).st_ino:  # swept away just before that
            os.close(descriptor)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return path, descriptor

    def left_staging_directory(self) -> tuple[Path, int] | None:
        """Hold a directory below `staging` that an interrupted fetch left, as the above does.

        None where there is none, or an install was interrupted: its journal speaks of it.
        """
        for path in sorted(self.staging.iterdir()):
            descriptor = _held_now(path)
            if descriptor is None:
                continue
            if not self.journal.exists() and inode_of(path) == os.fstat(descriptor).st_ino:
                return path, descriptor
            os.close(descriptor)
        return None

    def make_directories(self) -> None:
        """Make what is missing of it. Raises UnsafePathError, OSError."""
        for path in (self.directory, self.receipts, self.staging, self.old):
            with suppress(FileExistsError):
                path.mkdir(DIRECTORY_MODE)
            if not _is_trusted(path, self.root):
                raise UnsafePathError(
                    f"{path} is not a directory of this user, of root or of the cache's owner",
                    hint=f"find out who made {path}, and remove it",
                )

    def remove_if_unused(self) -> None:
        """Remove all of it, if no install is recorded in it. Only under the lock, which goes too.

        Raises OSError when something else is left in it; that is not removed.
        """
        if self.journal.exists() or any(self.receipts.iterdir()):
            return
        for path in (self.staging, self.old, self.receipts):
            path.rmdir()
        self.lock.unlink()
        self.directory.rmdir()

    def sweep(self) -> None:
        """Remove what was moved aside or is staged and held by nobody. Only under the lock, with
        no journal.

        What cannot be removed (another user's, say) costs space only: names are never used twice.
        """
        for leftover in self.old.iterdir():
            _try_remove(leftover)
        for leftover in self.staging.iterdir():
            if not _is_held(leftover):
                _try_remove(leftover)


def check_target(root: Path) -> Path:
    """Refuse a cache root into which nothing could be installed. Changes nothing.

    Returns the directory that exists: `root` with links resolved, or the nearest one above it.

    Raises:
        UnusablePlaceError: it, or what is above it, is no directory; it is `/`; it cannot have
            that name; this user may not write there.
    """
    hint = "name another directory with --root"
    existing = check_place(root, "a cache root", hint)
    resolved = Path(os.path.realpath(root))
    if not resolved.name:
        raise UnusablePlaceError(f"{root} cannot be a cache root: it holds all else", hint=hint)
    sibling_name = f"{PREFIX}.{resolved.name}"
    if existing != resolved and len(os.fsencode(sibling_name)) > name_max_bytes(existing):
        raise UnusablePlaceError(
            f"{root} cannot be a cache root: {sibling_name!r}, the installer's own directory "
            "beside it, would have too long a name",
            hint="make the directory, so that the installer's can be in it, or shorten its name",
        )
    return existing


def open_workspace(root: Path) -> Workspace:
    """Find the workspace of `root` and make its directories (and the root's parents) as needed.

    Raises:
        UnusablePlaceError: nothing can be installed into `root`.
        UnsafePathError: something else stands where the workspace should.
        OSError: a directory cannot be made.
    """
    check_target(root)
    resolved = Path(os.path.realpath(root))  # the root may be a link; nothing below it may
    exists = os.path.lexists(resolved)
    if not exists:
        _make_parents(resolved.parent)
    sibling = resolved.with_name(f"{PREFIX}.{resolved.name}")
    if exists and (is_mount_point(resolved) or not _is_usable(sibling, resolved)):
        workspace = Workspace(resolved, resolved / PREFIX)
    else:
        workspace = Workspace(resolved, sibling)
    workspace.make_directories()
    return workspace


def _make_parents(directory: Path) -> None:
    """Make what is missing of `directory` for those who use what is above: the engine's user too.

    An engine may have files of its own in it, beside the cache, and not start without them.
    """
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    if not missing:
        return
    access = Access.of(missing[-1])
    for path in reversed(missing):
        with suppress(FileExistsError):  # somebody else's then
            path.mkdir(DIRECTORY_MODE)
            access.apply(path, path.stat())


def receipt_directories(root: Path) -> list[Path]:
    """Return where receipts of installs into `root` are, without making anything.

    There are two when the root became a mount point, or writable by others, between two installs.
    """
    resolved = Path(os.path.realpath(root))
    if not resolved.name:  # "/" can be no cache root
        return []
    found = []
    for place in (resolved.with_name(f"{PREFIX}.{resolved.name}"), resolved / PREFIX):
        with suppress(OSError):  # absent, or a name too long
            if _is_trusted(place, resolved) and (place / "receipts").is_dir():
                found.append(place / "receipts")
    return found


def _is_held(staged: Path) -> bool:
    try:
        descriptor = os.open(staged, _OPEN_DIRECTORY)
    except OSError:
        return False  # no directory of ours, or not ours to open
    held = not _try_hold(descriptor)
    os.close(descriptor)
    return held


def _held_now(staged: Path) -> int | None:
    """Return a descriptor that holds `staged` from now on, None if somebody else does."""
    try:
        descriptor = os.open(staged, _OPEN_DIRECTORY)
    except OSError:
        return None
    if _try_hold(descriptor):
        return descriptor
    os.close(descriptor)
    return None


def _try_hold(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _try_remove(leftover: Path) -> None:
    try:
        remove_tree(leftover)
    except OSError as error:
        logger.warning("%s stays until the next install: %s", leftover, error)


def is_mount_point(path: Path) -> bool:
    """Return whether `path` is a mount point, or on another file system than its parent.

    `os.path.ismount` does not see a bind mount within one file system, as Kubernetes makes them.
    A btrfs subvolume is no mount point, but renames cannot cross its border either.
    """
    if path.stat().st_dev != path.parent.stat().st_dev:
        return True
    mounts = mount_table()
    return any(mount.point == path for mount in mounts) if mounts else os.path.ismount(path)


def _is_usable(sibling: Path, root: Path) -> bool:
    if len(os.fsencode(sibling.name)) > name_max_bytes(sibling.parent):
        return False
    place = sibling if os.path.lexists(sibling) else sibling.parent
    trusted = place == sibling.parent or _is_trusted(sibling, root)
    return trusted and os.access(place, os.W_OK | os.X_OK, effective_ids=True)


def _is_trusted(path: Path, root: Path) -> bool:
    """In /tmp anyone can make names; whoever owns the root decides over its content anyway."""
    found = os.lstat(path)
    owners = {0, os.geteuid()}
    if root.exists():
        owners.add(root.stat().st_uid)
    return stat.S_ISDIR(found.st_mode) and found.st_uid in owners
