"""One installer at a time for a root: flock, which the kernel frees when its holder dies."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from mx_artifacts.errors import InstallLockedError
from mx_artifacts.filesystem.files import inode_of
from mx_artifacts.runtime.clock import Clock

POLL_SECONDS = 0.05
"""flock has no timeout of its own, and a signal-based one works in the main thread only."""


@contextmanager
def locked(paths: Iterable[Path], timeout_seconds: float, clock: Clock) -> Iterator[None]:
    """Hold the locks `paths`, taken in sorted order so that two holders cannot wait for each other.

    A holder may remove a file. Who waited for it then has the lock of a file without a name, which
    counts for nothing, lest two processes lock two files of one name.

    Raises:
        FileNotFoundError: a file or its directory was removed meanwhile; begin anew.
        InstallLockedError: not all were free within `timeout_seconds`; names the holder.
    """
    deadline_seconds = clock.monotonic() + timeout_seconds
    with ExitStack() as stack:
        for path in sorted(paths):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            stack.callback(os.close, descriptor)  # closing frees the lock
            while not _try_lock(descriptor):
                left_seconds = deadline_seconds - clock.monotonic()
                if left_seconds <= 0:
                    raise InstallLockedError(
                        f"{path} is held by {_holder(descriptor)}; waited {timeout_seconds:g} s"
                    )
                clock.sleep(min(POLL_SECONDS, left_seconds))
            if inode_of(path) != os.fstat(descriptor).st_ino:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()} on {socket.gethostname()}".encode(), 0)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(descriptor: int) -> str:
    text = os.pread(descriptor, 300, 0).decode(errors="replace")
    return f"process {text}" if text else "another process"
