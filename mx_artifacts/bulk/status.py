"""The status of many files."""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from mx_artifacts.bulk.library import bytes_of, library, names_of
from mx_artifacts.threads import for_each, thread_count

DIRECTORY_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


class Stamp(NamedTuple):
    """What changes when a file does. Times are nanoseconds since the Unix epoch."""

    device: int
    inode: int
    mode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        """Return the stamp in a status."""
        return cls(
            status.st_dev,
            status.st_ino,
            status.st_mode,
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
        )


class StampColumns(NamedTuple):
    """The stamps of many files; what cannot be looked at, as what is absent, has zeros."""

    devices: Sequence[int]
    inodes: Sequence[int]
    modes: Sequence[int]
    sizes: Sequence[int]
    mtimes_ns: Sequence[int]
    ctimes_ns: Sequence[int]


def stamp_columns(directory: str, paths: Sequence[str]) -> StampColumns:
    """Return what stands at each of `paths` below `directory`; a link is not followed at the end.

    Raises:
        OSError: the directory cannot be looked into.
    """
    above = os.open(directory, DIRECTORY_FLAGS)
    try:
        if len(paths) < _WORTH_THREADS:
            return _columns(above, paths)
        size = -(-len(paths) // thread_count())
        parts: dict[int, StampColumns] = {}

        def look(start: int) -> None:
            parts[start] = _columns(above, paths[start : start + size])

        for_each(range(0, len(paths), size), look, "mx-status")
        columns = zip(*(parts[start] for start in sorted(parts)), strict=True)
        return StampColumns._make(tuple(chain(*column)) for column in columns)
    finally:
        os.close(above)


def _columns(above: int, paths: Sequence[str]) -> StampColumns:
    compiled, count = library(), len(paths)
    if compiled is not None:
        found = array("q", bytes(8 * len(Stamp._fields) * count))
        if compiled.bulk_status(above, count, names_of(paths), bytes_of(found)) == count:
            starts = (count * index for index in range(len(Stamp._fields)))
            return StampColumns._make(found[start : start + count] for start in starts)
        # A number does not fit into 64 bits with a sign: Python's have no such limit.
    rows = [_stamp(above, path) for path in paths]
    return StampColumns._make(zip(*rows, strict=True)) if rows else _NO_COLUMNS


_WORTH_THREADS = 4096
"""Files of which several threads look at a part each; fewer are done in some milliseconds."""
_NOTHING = Stamp(*(0,) * len(Stamp._fields))
_NO_COLUMNS = StampColumns(*((),) * len(Stamp._fields))


def _stamp(directory: int, path: str) -> Stamp:
    try:
        return Stamp.of(os.stat(path, dir_fd=directory, follow_symlinks=False))
    except OSError:
        return _NOTHING
