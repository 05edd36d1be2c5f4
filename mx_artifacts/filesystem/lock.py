"""Locks a root for one installer at a time, by flock; the kernel frees it when the holder dies."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from mx_artifacts.errors import InstallLockedError, UnsafePathError
from mx_artifacts.filesystem.beneath import Directory
from mx_artifacts.runtime.clock import Clock

POLL_SECONDS = 0.05
"""flock has no timeout of its own, and a signal-based one works in the main thread only."""
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK
_HOLDER_BYTES = 300


@dataclass(frozen=True)
class LockFile:
    """A lock by its name in a directory, which stays open meanwhile; it need not exist."""

    directory: Directory
    name: str = "lock"

    @property
    def path(self) -> Path:
        """Where it is, for messages."""
        return self.directory.path / self.name


@contextmanager
def locked(files: Iterable[LockFile], timeout_seconds: float, clock: Clock) -> Iterator[None]:
    """Hold locks, taken in the order of their paths so that two holders cannot wait for each other.

    A holder may remove a lock file. A process that waited for it then has the lock of a file
    without a name. Such a lock does not count, because otherwise two processes could lock two files
    of the same name.

    Raises:
        FileNotFoundError: a file or its directory was removed meanwhile; try again from the start.
        InstallLockedError: not all were free within `timeout_seconds`; names the holder.
        UnsafePathError: there is something other than a lock file in its place.
    """
    deadline_seconds = clock.monotonic() + timeout_seconds
    with ExitStack() as stack:
        for file in sorted(files, key=lambda file: file.path):
            descriptor = _open(file)
            stack.callback(os.close, descriptor)  # closing frees the lock
            while not _try_lock(descriptor):
                left_seconds = deadline_seconds - clock.monotonic()
                if left_seconds <= 0:
                    raise InstallLockedError(
                        f"{file.path} is held by {_holder(descriptor)}; "
                        f"waited {timeout_seconds:g} s"
                    )
                clock.sleep(min(POLL_SECONDS, left_seconds))
            if file.directory.inode_of(file.name) != os.fstat(descriptor).st_ino:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(file.path))
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()} on {socket.gethostname()}".encode(), 0)
        yield


def _open(file: LockFile) -> int:
    """Open a lock, into which its holder writes: so it must not be a file of another name, too."""
    try:
        descriptor = file.directory.open(file.name, _FLAGS, 0o644)
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode) and found.st_nlink <= 1:
            return descriptor
        os.close(descriptor)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            error.filename = str(file.path)
            raise
    raise UnsafePathError(
        f"{file.path} is not a lock file of mx-artifacts: it is a link, a directory or a device, "
        "or it has another name, too",
        hint=f"find out who created {file.path}, and remove it",
    )


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(descriptor: int) -> str:
    text = os.pread(descriptor, _HOLDER_BYTES, 0).decode(errors="replace")
    text = "".join(each if each.isprintable() else "?" for each in text)
    return f"process {text}" if text else "another process"
