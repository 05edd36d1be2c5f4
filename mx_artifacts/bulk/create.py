"""Creates many files from bytes that are in memory."""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from ctypes import byref, c_int
from dataclasses import dataclass

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

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Making:
    """Whose files are made: of `owner` (uid, gid) where they must be given; and what takes mode
    bits from those that are asked for."""

    owner: tuple[int, int] | None
    umask: int


@dataclass(frozen=True)
class NewFiles:
    """Files to be made of parts of one buffer, as columns: paths, where each part begins and its
    length [bytes], modes, and modification times [ns], 0 for that of their making."""

    paths: Sequence[str]
    offsets: array[int]
    lengths: array[int]
    modes: array[int]
    mtimes_ns: array[int]


def create_files(
    directory: int, files: NewFiles, data: memoryview, making: Making
) -> tuple[Sequence[int], Sequence[int]]:
    """Make files below a directory, given by its descriptor; return their mtimes and ctimes [ns].

    None of the files may exist, and no path may contain a symbolic link. Each file is complete;
    after an error, the last one may be incomplete.

    Raises:
        OSError: a file cannot be created; the earlier ones were. The error names its path.
        ValueError: a part lies outside of `data`, a path holds a NUL, or columns differ in length.
    """
    compiled = library()
    if compiled is None or data.readonly:
        rows = zip(
            files.paths, files.offsets, files.lengths, files.modes, files.mtimes_ns, strict=True
        )
        with Parents(directory) as parents:
            times = [
                _create(parents, path, part_of(data, offset, length, path), mode, mtime_ns, making)
                for path, offset, length, mode, mtime_ns in rows
            ]
        return [mtime for mtime, _ in times], [ctime for _, ctime in times]
    count = len(files.paths)
    found = array("q", bytes(16 * count))
    owner = array("q", making.owner or ())
    columns = (files.offsets, files.lengths, files.modes, files.mtimes_ns)
    error = c_int()
    done = compiled.bulk_create(
        directory,
        count,
        names_of(files.paths),
        bytes_of(data),
        data.nbytes,
        *(column_of(column, count) for column in columns),
        making.umask,
        bytes_of(owner),
        bytes_of(found),
        byref(error),
    )
    if done < count:
        raise error_of(error.value, files.paths[done])
    return found[::2], found[1::2]


def _create(
    parents: Parents, path: str, data: memoryview, mode: int, mtime_ns: int, making: Making
) -> tuple[int, int]:
    try:
        above, name = parents.of(path)
        descriptor = os.open(name, _FLAGS, mode, dir_fd=above)
        try:
            while data:
                data = data[os.write(descriptor, data) :]
            if making.owner is not None:
                os.chown(descriptor, *making.owner)
            if mode & making.umask:
                os.fchmod(descriptor, mode)
            if mtime_ns:
                os.utime(descriptor, ns=(mtime_ns, mtime_ns))
            found = os.fstat(descriptor)
            return found.st_mtime_ns, found.st_ctime_ns
        finally:
            os.close(descriptor)
    except OSError as error:
        raise os_error(error.errno or 0, path) from error
