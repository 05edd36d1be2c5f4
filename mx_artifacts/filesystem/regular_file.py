"""Reads files that somebody else wrote: regular files only, no links, and a stated size."""

from __future__ import annotations

import errno
import mmap
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_READ_BYTES = 1 << 20


@contextmanager
def open_regular_file(path: str | Path) -> Iterator[tuple[int, int]]:
    """Yield (descriptor, size [bytes]) of the file `path`, to be read.

    The last component of `path` is not followed when it is a link. Nothing blocks: a FIFO or a
    device in the file's place is refused after it was opened without waiting.

    Raises:
        OSError: it is absent, a link, no regular file, or cannot be read.
    """
    descriptor = os.open(path, _FLAGS)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
        yield descriptor, status.st_size
    finally:
        os.close(descriptor)


def mapped_regular_file(path: str | Path) -> memoryview:
    """Return the content of the file `path`, which is read as it is looked at.

    Raises:
        OSError: as `open_regular_file`.
    """
    with open_regular_file(path) as (descriptor, size):
        if not size:
            return memoryview(b"")
        return memoryview(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ))


def read_regular_file(path: str | Path, max_bytes: int) -> bytes:
    """Return the content of the file `path`, which must have no more than `max_bytes` [bytes].

    Raises:
        OSError: as `open_regular_file`, or it is longer.
    """
    with open_regular_file(path) as (descriptor, _):
        try:
            return read_descriptor(descriptor, max_bytes)
        except ValueError as error:
            raise OSError(errno.EFBIG, str(error), os.fspath(path)) from None


def read_descriptor(descriptor: int, max_bytes: int) -> bytes:
    """Return the content of an open file of no more than `max_bytes` [bytes].

    It must have been opened with O_NONBLOCK: a read of a FIFO would wait for a writer.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no regular file, or longer.
    """
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"it is {_kind_of(found.st_mode)}, not a regular file")
    parts, left = [], max_bytes + 1 if found.st_size <= max_bytes else 0
    while left and (part := os.read(descriptor, min(left, found.st_size + 1))):
        parts.append(part)
        left -= len(part)
    if not left:  # too long, or it grew
        raise ValueError(f"it is longer than {max_bytes} bytes")
    return b"".join(parts)


def have_same_content(one: str | Path, other: str | Path) -> bool:
    """Return whether two files have the same content; False where one cannot be read."""
    try:
        with open_regular_file(one) as (first, size), open_regular_file(other) as (second, also):
            offset = 0
            while size == also and offset < size:
                block = os.pread(first, _READ_BYTES, offset)
                if not block or block != os.pread(second, _READ_BYTES, offset):
                    return False
                offset += len(block)
            return size == also
    except OSError:
        return False


def _kind_of(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a directory",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode), "something else")
