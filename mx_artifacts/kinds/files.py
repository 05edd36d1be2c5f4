"""Writing into a staged tree, on behalf of fix-ups."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_FLAGS = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


def overwrite(path: str | Path, content: bytes) -> None:
    """Replace the content of the file `path`, whatever its mode; mode and mtime stay.

    It is written in place: nobody else reads what is staged, and what a crash leaves there counts
    only where it has the checksum of what was fetched. Raises OSError.
    """
    try:
        descriptor = os.open(path, _FLAGS)
    except PermissionError:
        mode = stat.S_IMODE(os.stat(path, follow_symlinks=False).st_mode)
        os.chmod(path, mode | stat.S_IWUSR)
        descriptor = os.open(path, _FLAGS)
        os.fchmod(descriptor, mode)
    try:
        status, left = os.fstat(descriptor), memoryview(content)
        while left:
            left = left[os.write(descriptor, left) :]
        if len(content) < status.st_size:
            os.ftruncate(descriptor, len(content))
        os.utime(descriptor, ns=(status.st_atime_ns, status.st_mtime_ns))
    finally:
        os.close(descriptor)
