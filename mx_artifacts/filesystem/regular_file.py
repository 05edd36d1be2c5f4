"""Reads small files that somebody else wrote: regular files only, no links, and a stated size."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read_regular_file(path: str | Path, max_bytes: int) -> bytes:
    """Return the content of the file `path`, which must have no more than `max_bytes` [bytes].

    The last component of `path` is not followed when it is a link. Nothing blocks: a FIFO or a
    device in the file's place is refused after it was opened without waiting.

    Raises:
        OSError: it is absent, a link, no regular file, too long, or cannot be read.
    """
    descriptor = os.open(path, _FLAGS)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
        parts, left = [], max_bytes + 1
        while left and (part := os.read(descriptor, min(left, status.st_size + 1))):
            parts.append(part)
            left -= len(part)
        if not left or status.st_size > max_bytes:
            raise OSError(errno.EFBIG, f"longer than {max_bytes} bytes", os.fspath(path))
        return b"".join(parts)
    finally:
        os.close(descriptor)
