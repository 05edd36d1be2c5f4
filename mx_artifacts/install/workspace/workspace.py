"""The workspace of a cache root: its staging area, lock, journal and receipts.

Moves into a root must be renames, so the workspace is on the root's file system: beside the root as
`.mx-artifacts.<root name>`, or inside it as `.mx-artifacts`. A bundle never contains either of them
(`kinds.base.NEVER_PACKED`). The root, or the directories around it, may belong to other users, so
the workspace is held by descriptors (docs/adr/0027).
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from mx_artifacts.errors import UnsafePathError
from mx_artifacts.filesystem.access import DIRECTORY_MODE, Access
from mx_artifacts.filesystem.beneath import TEMPORARY_PREFIX, Directory, is_private
from mx_artifacts.filesystem.lock import LockFile
from mx_artifacts.filesystem.resolved_path import is_open_to_others, trusted_users

logger = logging.getLogger(__name__)

PREFIX = ".mx-artifacts"
"""First letters of every name this package makes in or beside a root; no entry may use them."""
JOURNAL_NAME = "journal.json"
LOCK_NAME = "lock"
STAGING, OLD, RECEIPTS = "staging", "old", "receipts"
TREE = "tree"
"""The staged tree in its private directory: itself it has the owner that it will have."""
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY


@dataclass(frozen=True)
class StagingPlace:
    """A private directory below `staging`, which is held while `held` is open anywhere.

    `tree` is where to write, a path that stays right even where others can move what is above it.
    """

    name: str
    held: Directory
    tree: Path


@dataclass(frozen=True, eq=False)
class Workspace:
    """The workspace of one root, opened; `root` is resolved. Nothing here takes the lock.

    Attributes:
        root, directory: the paths of both.
        above: the directory in which the root has its name.
        held: the workspace itself.
        is_exposed: whether a stranger can move it, or what it has, to somewhere else.
    """

    root: Path
    directory: Path
    above: Directory
    held: Directory
    is_exposed: bool

    def close(self) -> None:
        """Close what is held. Idempotent."""
        self.above.close()
        self.held.close()

    @property
    def lock(self) -> Path:
        return self.directory / LOCK_NAME

    @property
    def lock_file(self) -> LockFile:
        return LockFile(self.held, LOCK_NAME)

    @property
    def journal(self) -> Path:
        return self.directory / JOURNAL_NAME

    @property
    def staging(self) -> Path:
        return self.directory / STAGING

    @property
    def old(self) -> Path:
        """What was moved aside; kept until the receipt is durable."""
        return self.directory / OLD

    @property
    def receipts(self) -> Path:
        return self.directory / RECEIPTS

    @property
    def is_inside(self) -> bool:
        return self.directory.parent == self.root

    def is_same(self, other: Workspace) -> bool:
        """Return whether both are one workspace of one root."""
        return self.held.is_same(other.held) and self.above.is_same(other.above)

    def is_current(self) -> bool:
        """Return whether it still has its name. Raises OSError."""
        with ExitStack() as stack:
            at = stack.enter_context(self.open_root()) if self.is_inside else self.above
            return at.inode_of(self.directory.name) == self.held.status().st_ino

    def open_root(self) -> Directory:
        """Return the root, to be closed.

        Raises:
            UnsafePathError: a link is there now.
            FileNotFoundError, NotADirectoryError, OSError
        """
        return self.above.enter(self.root.name)

    @contextmanager
    def root_if_any(self) -> Iterator[Directory | None]:
        """Yield the root, None where there is none. Raises UnsafePathError, OSError."""
        try:
            root = self.open_root()
        except (FileNotFoundError, NotADirectoryError):
            yield None
            return
        with root:
            yield root

    def access(self) -> Access:
        """Return owner and modes of installed files: those of the root or of its nearest parent."""
        with self.root_if_any() as root:
            return Access.of((root or self.above).status())

    def enter(self, name: str) -> Directory:
        """Return one of its directories, to be closed. Raises UnsafePathError, OSError."""
        return self.held.enter(name)

    def new_staging_place(self) -> StagingPlace:
        """Make an empty directory with a fresh name below `staging`, and hold it.

        Raises FileNotFoundError when the workspace is being removed.
        """
        with self.enter(STAGING) as staging:
            name, made = staging.make_private(f"{os.getpid()}-")
            try:
                fcntl.flock(made.descriptor, fcntl.LOCK_EX)
                if staging.inode_of(name) != made.status().st_ino:  # swept away just before that
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(made.path))
                return self._place(name, made)
            except BaseException:
                made.close()
                raise

    def left_staging_place(self) -> StagingPlace | None:
        """Hold a directory below `staging` that an interrupted fetch left, as the above does.

        None where there is none, or an install was interrupted: its journal speaks of it. Only what
        no other user could reach is taken.
        """
        with self.enter(STAGING) as staging:
            for name in staging.names():
                left = _held_now(staging, name)
                if left is None:
                    continue
                with suppress(OSError):
                    is_there = staging.inode_of(name) == left.status().st_ino
                    if is_there and is_private(left.status()) and not self.held.has(JOURNAL_NAME):
                        return self._place(name, left)
                left.close()
        return None

    def _place(self, name: str, held: Directory) -> StagingPlace:
        held.make(TREE, 0o700)
        if not self.is_exposed:
            return StagingPlace(name, held, held.path / TREE)
        # Whoever can move a directory above could lead a path elsewhere, but not a descriptor.
        tree = Path(f"/proc/{os.getpid()}/fd/{held.descriptor}", TREE)
        if not tree.is_dir():
            raise UnsafePathError(
                f"other users can rename directories above {held.path}, and /proc, which would "
                "allow to work in it safely, is not mounted",
                hint="mount /proc, or use a cache root below directories that only this user or "
                "root can change",
            )
        return StagingPlace(name, held, tree)

    def make_directories(self) -> None:
        """Make what is missing in it. Raises UnsafePathError, OSError."""
        owners = self._owners()
        _check_trusted(self.held, owners)
        for name in (RECEIPTS, STAGING, OLD):
            self.held.make(name, DIRECTORY_MODE)
            try:
                with self.enter(name) as made:
                    _check_trusted(made, owners)
            except NotADirectoryError:
                raise untrusted_place(self.directory / name) from None

    def _owners(self) -> frozenset[int]:
        """Return the users who may have created it. The owner of the root, or of its parent,
        controls its content anyway."""
        with self.root_if_any() as root:
            return trusted_users() | {(root or self.above).status().st_uid}

    def remove_if_unused(self) -> None:
        """Remove all of it, if no install is recorded in it. Only under the lock, which goes too.

        Raises OSError when something else is left in it; that is not removed.
        """
        if self.held.has(JOURNAL_NAME) or self.held.names(RECEIPTS):
            return
        for name in (STAGING, OLD, RECEIPTS):
            os.rmdir(name, dir_fd=self.held.descriptor)
        self.held.remove(LOCK_NAME)
        with ExitStack() as stack:
            at = stack.enter_context(self.open_root()) if self.is_inside else self.above
            os.rmdir(self.directory.name, dir_fd=at.descriptor)

    def sweep(self) -> None:
        """Remove what was moved aside, and staged files that no process uses. Call this only under
        the lock and without a journal.

        Files that cannot be removed (for example those of another user) only cost space, because no
        name is used twice. Raises OSError if its own directories cannot be listed.
        """
        owners = None
        if is_open_to_others(self.held.status()):
            owners = self._owners() | {self.held.status().st_uid}
        for name in (OLD, STAGING):
            with self.enter(name) as directory:
                for leftover in directory.names():
                    if name == OLD or not _is_held(directory, leftover):
                        _try_remove(directory, leftover, owners)
        for name in ("", RECEIPTS):
            with self.enter(name) as directory:
                for leftover in directory.names():
                    if leftover.startswith(TEMPORARY_PREFIX):
                        _try_remove(directory, leftover, owners)


def _is_held(directory: Directory, name: str) -> bool:
    try:
        descriptor = directory.open(name, _OPEN_DIRECTORY)
    except OSError:
        return False  # no directory of ours, or not ours to open
    held = not _try_hold(descriptor)
    os.close(descriptor)
    return held


def _held_now(directory: Directory, name: str) -> Directory | None:
    """Return the lock on `name` in `directory`, or None if another process has it."""
    try:
        descriptor = directory.open(name, _OPEN_DIRECTORY)
    except OSError:
        return None
    if _try_hold(descriptor):
        return Directory(descriptor, directory.path / name)
    os.close(descriptor)
    return None


def _try_hold(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _try_remove(directory: Directory, leftover: str, owners: frozenset[int] | None) -> None:
    try:
        directory.remove_tree(leftover, owners)
    except OSError as error:
        logger.warning("%s stays until the next install: %s", directory.path / leftover, error)


def _check_trusted(directory: Directory, owners: frozenset[int]) -> None:
    """In /tmp anyone can make names. Raises UnsafePathError."""
    if directory.status().st_uid not in owners:
        raise untrusted_place(directory.path)


def untrusted_place(path: Path) -> UnsafePathError:
    """Return the error for something of a stranger's in the place of a workspace."""
    return UnsafePathError(
        f"{path} is not a directory that belongs to this user, to root or to the owner of the "
        "cache",
        hint=f"find out who created {path}, and remove it",
    )
