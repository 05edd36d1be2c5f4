"""Replaces the contents of many files."""

from __future__ import annotations

import errno
import os
import stat
from array import array
from collections.abc import Mapping
from ctypes import byref, c_int
from itertools import accumulate
from pathlib import Path

from mx_artifacts.bulk.beneath import Parents
from mx_artifacts.bulk.library import bytes_of, column_of, library, names_of, os_error

_DIRECTORY_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_FLAGS = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def overwrite_files(directory: str, contents: Mapping[str, bytes]) -> None:
    """Replace the content of each file in `contents`, by path below `directory`.

    As `overwrite` does it, one after the other: after an error those before it were written. No
    symbolic link is followed on the way. Raises OSError.
    """
    paths, done = list(contents), 0
    compiled = library()
    above = os.open(directory, _DIRECTORY_FLAGS)
    try:
        if compiled is not None and paths:
            lengths = array("q", map(len, contents.values()))
            offsets = array("q", accumulate(lengths[:-1], initial=0))
            data, count, error = bytearray(b"".join(contents.values())), len(paths), c_int()
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
        with Parents(above) as parents:
            for path in paths[done:]:  # from one on that is not writable, or cannot be written
                parent, name = parents.of(path)
                _overwrite(name, parent, path, contents[path])
    finally:
        os.close(above)


def overwrite(path: str | Path, content: bytes) -> None:
    """Replace the content of the file `path`, even if it is read-only; mode and mtime stay.

    It is written in place. That is safe, because no other process reads staged files, and a file
    that a crash left is used only if it has the right checksum. Raises OSError.
    """
    _overwrite(os.fspath(path), None, os.fspath(path), content)


def _overwrite(name: str, directory: int | None, path: str, content: bytes) -> None:
    try:
        descriptor = os.open(name, _FLAGS, dir_fd=directory)
    except PermissionError:
        descriptor = _made_writable(name, directory)
    try:
        status, left = os.fstat(descriptor), memoryview(content)
        if not stat.S_ISREG(status.st_mode):
            raise os_error(errno.ENXIO, path)
        while left:
            left = left[os.write(descriptor, left) :]
        if len(content) < status.st_size:
            os.ftruncate(descriptor, len(content))
        os.utime(descriptor, ns=(status.st_atime_ns, status.st_mtime_ns))
    finally:
        os.close(descriptor)


def _made_writable(name: str, directory: int | None) -> int:
    """Open a file that its mode does not let us write, and leave its mode as it is."""
    found = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        status = os.fstat(found)
        if not stat.S_ISREG(status.st_mode):
            raise os_error(errno.ENXIO, name)
        mode, itself = stat.S_IMODE(status.st_mode), f"/proc/self/fd/{found}"
        os.chmod(itself, mode | stat.S_IWUSR)
        try:
            return os.open(itself, _FLAGS & ~os.O_NOFOLLOW)
        finally:
            os.chmod(itself, mode)
    finally:
        os.close(found)
