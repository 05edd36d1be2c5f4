"""Opens paths below a directory that is held open; no link can lead out of that directory.

The kernel follows a path (openat2, Linux 5.6). If the kernel has no such call, or the rules of a
container forbid it, this module follows the path part by part. Both ways follow no symbolic link,
neither at the end nor on the way, and never go up. The owner of a directory below can still move it
while it is open. Then a file of that owner is opened, which the owner could also have named
directly.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import stat
from collections.abc import Callable
from functools import cache
from types import TracebackType

DIRECTORY_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Of a directory that others are opened from: needs no permission to read it."""
_MACHINES = frozenset({"x86_64", "aarch64", "ppc64le", "s390x", "riscv64"})
_OPENAT2 = 437  # the number of the system call on all of these machines
_RESOLVE = 0x02 | 0x04 | 0x08  # linux/openat2.h: RESOLVE_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH
_RESOLVED_FLAGS = DIRECTORY_FLAGS & ~os.O_NOFOLLOW
"""With O_NOFOLLOW the call would open a link at the end, which is no directory."""
_MISSING = (errno.ENOSYS, errno.EPERM)
"""What the kernel, or a container's rules, say to a call that cannot be had. Opening a directory
by O_PATH has no other reason for EPERM."""


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_beneath(directory: int, path: str, flags: int, mode: int = 0) -> int:
    """Open `path`, relative to the open `directory`, and return its descriptor.

    The last part is not followed either; with O_PATH and without O_DIRECTORY a link is opened
    itself.

    Raises:
        OSError: it cannot be opened: ELOOP where a link is on the way or at its end, EXDEV
            where it would lead out of the directory. Names the path.
    """
    flags |= os.O_NOFOLLOW | os.O_CLOEXEC
    above, slash, name = path.rpartition("/")
    if not slash:
        return _open_part(directory, path, path, flags, mode)
    parent = open_directory_beneath(directory, above)
    try:
        return _open_part(parent, name, path, flags, mode)
    finally:
        os.close(parent)


def open_directory_beneath(directory: int, path: str) -> int:
    """Return a descriptor (O_PATH) of the directory `path`; raises as `open_beneath`."""
    call = _openat2() if "/" in path else None
    if call is None:
        return _walk(directory, path)
    how = _How(_RESOLVED_FLAGS, 0, _RESOLVE)
    number = ctypes.c_long(_OPENAT2)
    name = os.fsencode(path)
    while True:
        size = ctypes.c_size_t(ctypes.sizeof(how))
        found = call(number, directory, ctypes.c_char_p(name), ctypes.byref(how), size)
        if found >= 0:
            return int(found)
        error = ctypes.get_errno()
        if error != errno.EINTR:
            raise OSError(error, os.strerror(error), path)


def _walk(directory: int, path: str) -> int:
    inner = -1
    try:
        for part in path.split("/"):
            outer, inner = (
                inner,
                _open_part(directory if inner < 0 else inner, part, path, DIRECTORY_FLAGS, 0),
            )
            if outer >= 0:
                os.close(outer)
    except OSError:
        if inner >= 0:
            os.close(inner)
        raise
    return inner


def _open_part(directory: int, part: str, path: str, flags: int, mode: int) -> int:
    check_part(part, path)
    try:
        return os.open(part, flags, mode, dir_fd=directory)
    except OSError as error:
        number = error.errno or errno.EIO
        if number == errno.ENOTDIR and _is_link(directory, part):
            number = errno.ELOOP  # as openat2 says
        raise OSError(number, os.strerror(number), path) from None


def check_part(part: str, path: str) -> None:
    """Refuse a part of `path` that would lead up. Raises OSError."""
    if part == "..":
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)


def _is_link(directory: int, part: str) -> bool:
    try:
        found = os.stat(part, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISLNK(found.st_mode)


@cache
def _openat2() -> Callable[..., int] | None:
    """Return the C library's `syscall`, if the kernel knows openat2 and lets us use it."""
    if platform.machine() not in _MACHINES:
        return None
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    how = _How(_RESOLVED_FLAGS, 0, _RESOLVE)
    size = ctypes.c_size_t(ctypes.sizeof(how))
    found = call(ctypes.c_long(_OPENAT2), -100, ctypes.c_char_p(b"."), ctypes.byref(how), size)
    if found >= 0:
        os.close(found)
        return call
    return None if ctypes.get_errno() in _MISSING else call


class Parents:
    """The directories of the files of a list, below a directory that is held open.

    Each is opened once for consecutive files in it. Close this object after use.
    """

    def __init__(self, directory: int) -> None:
        self._directory = directory
        self._path = ""
        self._descriptor = -1

    def of(self, path: str) -> tuple[int, str]:
        """Return the descriptor of the directory that holds `path`, and its last part.

        The descriptor is good until the next call. Raises OSError, as `open_beneath`.
        """
        above, slash, name = path.rpartition("/")
        check_part(name, path)
        if not slash:
            return self._directory, path
        if self._descriptor < 0 or above != self._path:
            self.close()
            self._descriptor = open_directory_beneath(self._directory, above)
            self._path = above
        return self._descriptor, name

    def close(self) -> None:
        """Close what is open. Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Parents:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
