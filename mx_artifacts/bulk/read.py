"""Reads many files into one buffer."""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from ctypes import byref, c_int
from itertools import accumulate

from mx_artifacts.bulk.beneath import Parents
from mx_artifacts.bulk.library import (
    bytes_of,
    column_of,
    error_of,
    library,
    names_of,
    os_error,
    part_of,
)
from mx_artifacts.bulk.status import stamp_columns
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

    The files are below a directory, given by its descriptor. No file is a symbolic link, and no
    path contains one. The status of each file is checked before and after, so that something other
    than a regular file cannot block or be endless. Bytes after `lengths` are not read.

    Raises:
        ShortFileError
        OSError: one cannot be read. Names its path.
        ValueError: a part lies outside of `space`, a path holds a NUL, or columns differ in length.
    """
    compiled = library()
    if compiled is None:
        with Parents(directory) as parents:
            return [
                _read(parents, path, part_of(space, offset, length, path))
                for path, offset, length in zip(paths, offsets, lengths, strict=True)
            ]
    count = len(paths)
    checksums = array("I", bytes(4 * count))
    error = c_int()
    done = compiled.bulk_read(
        directory,
        count,
        names_of(paths),
        bytes_of(space),
        space.nbytes,
        column_of(offsets, count),
        column_of(lengths, count),
        bytes_of(checksums),
        byref(error),
    )
    if done == count:
        return checksums
    if error.value:
        raise error_of(error.value, paths[done])
    raise ShortFileError(paths[done])


def contents_of(directory: str, paths: Sequence[str], max_bytes: int) -> list[bytes | None]:
    """Return what small files below `directory` hold; None for one of more than `max_bytes`.

    Raises:
        ShortFileError: one became shorter meanwhile.
        OSError: one cannot be read. Names its path.
    """
    sizes = stamp_columns(directory, paths).sizes
    lengths = array("q", [size if size <= max_bytes else 0 for size in sizes])
    offsets = array("q", accumulate(lengths, initial=0))
    space = memoryview(bytearray(offsets.pop()))
    above = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        read_files(above, paths, space, offsets, lengths)
    finally:
        os.close(above)
    return [
        bytes(space[offset : offset + length]) if size == length else None
        for size, offset, length in zip(sizes, offsets, lengths, strict=True)
    ]


def _read(parents: Parents, path: str, content: memoryview) -> int:
    try:
        above, name = parents.of(path)
        descriptor = os.open(name, _FLAGS, dir_fd=above)
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
    except OSError as error:
        raise os_error(error.errno or 0, path) from error
