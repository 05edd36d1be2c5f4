"""The status of many files."""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from ctypes import byref, c_int
from typing import NamedTuple

from mx_artifacts.bulk.library import address_of, library, names_of, os_error

_PATH_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


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


def stamps_of(directory: str, paths: Sequence[str]) -> list[Stamp]:
    """Return what stands at each of `paths` below `directory`; a link is not followed at the end.

    Raises:
        OSError: one cannot be looked at, as when it is absent; names its path, which is relative.
    """
    compiled = library()
    if compiled is None:
        return [_stamp(directory, path) for path in paths]
    names = names_of(paths)
    found = array("q", bytes(8 * len(Stamp._fields) * len(paths)))
    error = c_int()
    above = os.open(directory, _PATH_FLAGS)
    try:
        done = compiled.bulk_status(above, len(paths), names, address_of(found), byref(error))
    finally:
        os.close(above)
    if done < len(paths):
        raise os_error(error.value, paths[done])
    values = iter(found)
    return list(map(Stamp._make, zip(*[values] * len(Stamp._fields), strict=True)))


def _stamp(directory: str, path: str) -> Stamp:
    try:
        return Stamp.of(os.lstat(f"{directory}/{path}"))
    except OSError as error:
        raise os_error(error.errno or 0, path) from None
