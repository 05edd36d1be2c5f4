"""Replace what many files hold."""

from __future__ import annotations

import os
import stat
from array import array
from collections.abc import Mapping
from ctypes import byref, c_int
from itertools import accumulate
from pathlib import Path

from mx_artifacts.bulk.library import bytes_of, column_of, library, names_of

_DIRECTORY_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_FLAGS = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def overwrite_files(directory: str, contents: Mapping[str, bytes]) -> None:
    """Replace the content of each file in `contents`, by path below `directory`.

    As `overwrite` does it, one after the other: after an error those before it were written.
    Raises OSError.
    """
    paths, done = list(contents), 0
    compiled = library()
    if compiled is not None and paths:
        lengths = array("q", map(len, contents.values()))
        offsets = array("q", accumulate(lengths[:-1], initial=0))
        data, count, error = bytearray(b"".join(contents.values())), len(paths), c_int()
        above = os.open(directory, _DIRECTORY_FLAGS)
        try:
            done = compiled.bulk_overwrite(
                above,
                count,
                names_of(paths),
                bytes_of(data),
                len(data),
                column_of(offsets, count),
                column_of(lengths, count),
                byref(error),
            )
        finally:
            os.close(above)
    for path in paths[done:]:  # from one on that is not writable, or cannot be written at all
        overwrite(f"{directory}/{path}", contents[path])


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
