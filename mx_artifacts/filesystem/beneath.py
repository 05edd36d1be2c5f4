"""A directory that is held open, and operations below it that can never leave it.

The owner of a directory can put links and other files in the way of a process that works in it, at
any moment. So names are looked up from a descriptor, no symbolic link is followed, only regular
files are read, and files that will belong to another user are made where nobody else can reach them
(docs/adr/0027).
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from mx_artifacts.bulk.beneath import (
    DIRECTORY_FLAGS,
    Parents,
    open_beneath,
    open_directory_beneath,
)
from mx_artifacts.errors import UnsafePathError
from mx_artifacts.filesystem.busy import retried
from mx_artifacts.filesystem.regular_file import read_descriptor

PRIVATE_MODE = 0o700
_LISTED_FLAGS = os.O_RDONLY | os.O_DIRECTORY
_READ_FLAGS = os.O_RDONLY | os.O_NONBLOCK
_NEW_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_NEW_MODE = 0o644
TEMPORARY_PREFIX = ".tmp-"
MAX_DEPTH = 256
"""Directories, one in the other, that are removed: four times as many as a bundle may have."""
_ATTEMPTS = 100
"""Attempts to find a free random name; only an attacker can use all of them."""


def nothing() -> None:
    """Do nothing."""


class Directory:
    """A directory by its descriptor. `path` is where it was found, and is for messages only.

    Paths below it are relative and "/"-separated, and "" is the directory itself where a directory
    is wanted. Any thread; the caller that opened it closes it.
    """

    def __init__(self, descriptor: int, path: Path) -> None:
        """Take over a descriptor."""
        self.descriptor = descriptor
        self.path = path

    def close(self) -> None:
        """Close it. Idempotent."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __enter__(self) -> Directory:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- looking --------------------------------------------------------------------------------

    def status(self) -> os.stat_result:
        """Return its own status."""
        return os.fstat(self.descriptor)

    def is_same(self, other: Directory) -> bool:
        """Return whether both are one directory, at one path."""
        return self.path == other.path and os.path.samestat(self.status(), other.status())

    def status_of(self, path: str) -> os.stat_result:
        """Return the status of what is at `path`, of a link itself. Raises OSError."""
        with Parents(self.descriptor) as parents:
            above, name = parents.of(path)
            return os.stat(name, dir_fd=above, follow_symlinks=False)

    def inode_of(self, path: str) -> int | None:
        """Return the inode number of what is at `path`, None where nothing is. Raises OSError."""
        try:
            return self.status_of(path).st_ino
        except FileNotFoundError:
            return None

    def has(self, path: str) -> bool:
        """Return whether something, a link too, is at `path`. Raises OSError."""
        return self.inode_of(path) is not None

    def names(self, path: str = "") -> list[str]:
        """Return the names in the directory at `path`, sorted. Raises OSError."""
        descriptor = open_beneath(self.descriptor, path or ".", _LISTED_FLAGS)
        try:
            return sorted(os.listdir(descriptor))
        finally:
            os.close(descriptor)

    # --- opening --------------------------------------------------------------------------------

    def open(self, path: str, flags: int, mode: int = 0) -> int:
        """Return a descriptor of what is at `path`, to be closed. Raises OSError, for links too."""
        return open_beneath(self.descriptor, path or ".", flags, mode)

    def enter(self, path: str) -> Directory:
        """Return the directory at `path`, to be closed.

        Raises:
            UnsafePathError: a link is there, or on the way.
            OSError: there is none.
        """
        with self._links_refused(path):
            return Directory(open_directory_beneath(self.descriptor, path or "."), self.path / path)

    @contextmanager
    def parent_of(self, path: str) -> Iterator[tuple[int, str]]:
        """Yield (descriptor of the directory that holds `path`, its last part).

        Operations relative to that descriptor cannot leave this directory, even if the path changes
        meanwhile.

        Raises:
            UnsafePathError: a symbolic link is on the way.
            FileNotFoundError, NotADirectoryError: a directory on the way is missing, or is none.
        """
        with Parents(self.descriptor) as parents:
            with self._links_refused(path):
                above, name = parents.of(path)
            yield above, name

    @contextmanager
    def _links_refused(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.EXDEV):
                raise
            raise UnsafePathError(
                f"there is a symbolic link on the path to {path!r} in {self.path}",
                hint="remove the link, or use the directory to which it points in place of "
                f"{self.path}",
            ) from None

    # --- small files ----------------------------------------------------------------------------

    def read(self, path: str, max_bytes: int) -> bytes:
        """Return what the regular file at `path` holds, of at most `max_bytes`.

        Raises:
            OSError: it cannot be read, or is a link; what is no file at all has no content either.
            ValueError: it is no regular file, or longer.
        """
        descriptor = self.open(path, _READ_FLAGS)
        try:
            return read_descriptor(descriptor, max_bytes)
        finally:
            os.close(descriptor)

    def write(self, name: str, content: bytes) -> None:
        """Put `content` at `name`, as `put` does, and make the name durable. Raises OSError."""
        self.put(name, content)
        self.sync()

    def put(self, name: str, content: bytes, before_rename: Callable[[], None] = nothing) -> None:
        """Put `content` at `name`: a reader, even after a power cut, sees all or nothing.

        `before_rename` is called when only the name is left to be made; if it raises, none is. A
        crash may leave a file whose name begins with TEMPORARY_PREFIX. Raises OSError.
        """
        temporary, descriptor = self._new_file()
        try:
            try:
                left = memoryview(content)
                while left:
                    left = left[os.write(descriptor, left) :]
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            before_rename()
            within = {"src_dir_fd": self.descriptor, "dst_dir_fd": self.descriptor}
            retried(lambda: os.rename(temporary, name, **within))
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=self.descriptor)
            raise

    def _new_file(self) -> tuple[str, int]:
        for name in _random_names(TEMPORARY_PREFIX):
            with suppress(FileExistsError):
                return name, self.open(name, _NEW_FLAGS, _NEW_MODE)
        raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), str(self.path))

    def sync(self, path: str = "") -> None:
        """Make the names in the directory at `path` durable. Raises OSError."""
        descriptor = self.open(path, _LISTED_FLAGS)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    # --- making and removing --------------------------------------------------------------------

    def make(self, name: str, mode: int) -> None:
        """Make a directory in this one, which may be there already. Raises OSError."""
        with suppress(FileExistsError):
            os.mkdir(name, mode, dir_fd=self.descriptor)

    def make_private(self, prefix: str) -> tuple[str, Directory]:
        """Create a directory that no other user can read; return its random name and the directory.

        No other user can reach files in it, not even a user who may rename the directory. So files
        get their owner and mode there and are then moved to their final place.

        Raises:
            UnsafePathError: another user replaced the directory at once. OSError
        """
        for name in _random_names(prefix):
            try:
                os.mkdir(name, PRIVATE_MODE, dir_fd=self.descriptor)
            except FileExistsError:
                continue
            made = Directory(self.open(name, _LISTED_FLAGS), self.path / name)
            try:
                if not is_private(made.status()) or made.names():
                    raise UnsafePathError(
                        f"{made.path} is not the directory that was just created there",
                        hint=f"find out which other process changes {self.path}",
                    )
            except BaseException:
                made.close()
                raise
            return name, made
        raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), str(self.path))

    def remove(self, path: str) -> None:
        """Remove a file, or a link itself. Raises OSError."""
        with Parents(self.descriptor) as parents:
            above, name = parents.of(path)
            os.unlink(name, dir_fd=above)

    def remove_tree(self, name: str, owners: Collection[int] | None = None) -> None:
        """Remove `name` in this directory, and all below it; fine when it is absent.

        Read-only directories are removed too, and links never followed. What belongs to none of
        the users `owners` stays, and what is above it, unless that is None.

        Raises:
            OSError: something cannot be removed, or stays.
        """
        _remove(self.descriptor, name, owners, MAX_DEPTH)


def is_private(found: os.stat_result) -> bool:
    """Return whether a directory is this user's, and no other user can look into it."""
    return found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077


def _random_names(prefix: str) -> Iterator[str]:
    for _ in range(_ATTEMPTS):
        yield f"{prefix}{secrets.token_hex(8)}"


def _remove(directory: int, name: str, owners: Collection[int] | None, depth: int) -> None:
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return
    if owners is not None and found.st_uid not in owners:
        raise PermissionError(errno.EPERM, f"it belongs to user {found.st_uid}", name)
    if not stat.S_ISDIR(found.st_mode):
        os.unlink(name, dir_fd=directory)
        return
    if not depth:
        raise OSError(errno.ENAMETOOLONG, "directories are nested too deeply", name)
    inner = _open_to_empty(directory, name)
    try:
        for each in os.listdir(inner):
            _remove(inner, each, owners, depth - 1)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=directory)


def _open_to_empty(directory: int, name: str) -> int:
    """Open a directory, made readable and writable for its owner where that is this user."""
    found = os.open(name, DIRECTORY_FLAGS, dir_fd=directory)
    try:
        status = os.fstat(found)
        lacks = ~status.st_mode & PRIVATE_MODE
        if lacks and status.st_uid == os.geteuid():
            os.chmod(f"/proc/self/fd/{found}", stat.S_IMODE(status.st_mode) | PRIVATE_MODE)
        return os.open(".", _LISTED_FLAGS | os.O_CLOEXEC, dir_fd=found)
    finally:
        os.close(found)
