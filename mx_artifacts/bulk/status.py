"""Reads the status of many files."""

from __future__ import annotations

import os
import stat
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import NamedTuple, TypeVar

from mx_artifacts.bulk.beneath import Parents
from mx_artifacts.bulk.library import bytes_of, column_of, library, names_of
from mx_artifacts.runtime.threads import for_each, thread_count

T = TypeVar("T")
_DIRECTORY_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


LINKED = 1 << 20
"""Added to the mode of a file that has other names (hard links), too: what a stranger can name in a
directory of theirs, and have us read."""


class Stamp(NamedTuple):
    """What changes when a file does. Times are nanoseconds since the Unix epoch.

    `mode` is the system's, and LINKED.
    """

    device: int
    inode: int
    mode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        """Return the stamp in a status."""
        is_linked = status.st_nlink > 1 and stat.S_ISREG(status.st_mode)
        return cls(
            status.st_dev,
            status.st_ino,
            status.st_mode | (LINKED if is_linked else 0),
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


def stamp_columns(directory: str | int, paths: Sequence[str]) -> StampColumns:
    """Return what is at each of `paths` below `directory`, a path or a descriptor.

    No symbolic link is followed, at the end of a path or on the way.

    Raises:
        OSError: the directory cannot be looked into.
    """
    parts = _in_parts(directory, len(paths), lambda above, part: _columns(above, paths[part]))
    if len(parts) == 1:
        return parts[0]
    columns = zip(*parts, strict=True)
    return StampColumns._make(tuple(chain(*column)) for column in columns)


def all_are_files(
    directory: str | int,
    paths: Sequence[str],
    sizes: Sequence[int],
    mtimes_ns: Sequence[int],
    *,
    alone: bool = False,
) -> bool:
    """Return whether all of `paths` are regular files of these sizes and modification times.

    `directory` and `paths` are as those of `stamp_columns`.

    Many are looked at by several threads, unless `alone`.

    Raises:
        OSError: the directory cannot be looked into.
    """
    compiled = library()

    def are_files(above: int, part: slice) -> bool:
        some = paths[part]
        if compiled is not None:
            with suppress(OverflowError):  # a number that does not fit into 64 bits with a sign
                numbers = [array("q", column[part]) for column in (sizes, mtimes_ns)]
                columns = (column_of(each, len(some)) for each in numbers)
                same = compiled.bulk_same(above, len(some), names_of(some), *columns)
                return bool(same == len(some))
        found = _stamps(above, some)
        return all(
            stat.S_ISREG(each.mode) and (each.size, each.mtime_ns) == (size, mtime_ns)
            for each, size, mtime_ns in zip(found, sizes[part], mtimes_ns[part], strict=True)
        )

    return all(_in_parts(directory, len(paths), are_files, alone=alone))


def _in_parts(
    directory: str | int, count: int, look: Callable[[int, slice], T], *, alone: bool = False
) -> list[T]:
    """Return what `look` returns for each part of a list, in its order; many by several threads."""
    is_open = isinstance(directory, int)
    above = directory if isinstance(directory, int) else os.open(directory, _DIRECTORY_FLAGS)
    try:
        threads = 1 if alone or count < _WORTH_THREADS else thread_count()
        size = max(1, -(-count // threads))
        found: dict[int, T] = {}

        def look_at(start: int) -> None:
            found[start] = look(above, slice(start, start + size))

        for_each(range(0, max(1, count), size), look_at, "mx-status")
        return [found[start] for start in sorted(found)]
    finally:
        if not is_open:
            os.close(above)


def _columns(above: int, paths: Sequence[str]) -> StampColumns:
    compiled, count = library(), len(paths)
    if compiled is not None:
        found = array("q", bytes(8 * len(Stamp._fields) * count))
        if compiled.bulk_status(above, count, names_of(paths), bytes_of(found)) == count:
            starts = (count * index for index in range(len(Stamp._fields)))
            return StampColumns._make(found[start : start + count] for start in starts)
        # A number does not fit into 64 bits with a sign: Python's have no such limit.
    rows = list(_stamps(above, paths))
    return StampColumns._make(zip(*rows, strict=True)) if rows else _NO_COLUMNS


_WORTH_THREADS = 4096
"""Minimum number of files for several threads; one thread does fewer in some milliseconds."""
_NOTHING = Stamp(*(0,) * len(Stamp._fields))
_NO_COLUMNS = StampColumns(*((),) * len(Stamp._fields))


def _stamps(directory: int, paths: Sequence[str]) -> Iterator[Stamp]:
    with Parents(directory) as parents:
        for path in paths:
            try:
                above, name = parents.of(path)
                yield Stamp.of(os.stat(name, dir_fd=above, follow_symlinks=False))
            except OSError:
                yield _NOTHING
