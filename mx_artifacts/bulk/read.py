"""Read many files into one buffer."""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from ctypes import byref, c_int

from mx_artifacts.bulk.library import (
    address_of,
    address_of_bytes,
    library,
    names_of,
    os_error,
)
from mx_artifacts.core.digest import crc32c

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class ShortFileError(Exception):
    """A file has fewer bytes than were to be read; `path` says which."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


def read_files(
    directory: int,
    paths: Sequence[str],
    space: memoryview,
    offsets: array[int],
    lengths: array[int],
) -> Sequence[int]:
    """Fill parts of `space` with the first bytes of files; return each part's CRC32C.

    The files lie below a directory, given by its descriptor; none may be a link. What lies behind
    `lengths` is not looked at.

    Raises:
        ShortFileError
        OSError: one cannot be read. Names its path.
    """
    compiled = library()
    if compiled is None:
        return [
            _read(directory, path, space[offset : offset + length])
            for path, offset, length in zip(paths, offsets, lengths, strict=True)
        ]
    checksums = array("I", bytes(4 * len(paths)))
    error = c_int()
    done = compiled.bulk_read(
        directory,
        len(paths),
        names_of(paths),
        address_of_bytes(space),
        address_of(offsets),
        address_of(lengths),
        address_of(checksums),
        byref(error),
    )
    if done == len(paths):
        return checksums
    if error.value:
        raise os_error(error.value, paths[done])
    raise ShortFileError(paths[done])


def _read(directory: int, path: str, content: memoryview) -> int:
    descriptor = os.open(path, _FLAGS, dir_fd=directory)
    try:
        position = 0
        while position < len(content):
            count = os.readv(descriptor, [content[position:]])
            if not count:
                raise ShortFileError(path)
            position += count
        return crc32c(content)
    finally:
        os.close(descriptor)
