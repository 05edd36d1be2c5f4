"""Renames that do not overwrite, and swaps without a gap: Linux's renameat2, with fall-backs.

File systems that know no such flags (NFS, some FUSE) answer EINVAL; a C library may lack the call.
Every name is relative to an open directory.
"""

from __future__ import annotations

import ctypes
import errno
import os

_RENAME_NOREPLACE = 1  # linux/fs.h
_RENAME_EXCHANGE = 2  # linux/fs.h
_UNSUPPORTED = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}
_renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)


def rename_new(source_fd: int, source: str, parent_fd: int, name: str) -> None:
    """Rename `source` to `name` in the directory `parent_fd`, where nothing may be yet.

    Raises:
        FileExistsError: something is there; both are untouched. Without renameat2 a file that
            appears in the very moment of the rename is overwritten (a directory never is).
    """
    if _rename(source_fd, source, parent_fd, name, _RENAME_NOREPLACE):
        return
    try:
        os.stat(name, dir_fd=parent_fd, follow_symlinks=False)
    except FileNotFoundError:
        os.rename(source, name, src_dir_fd=source_fd, dst_dir_fd=parent_fd)
    else:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)


def exchange(source_fd: int, source: str, parent_fd: int, name: str) -> bool:
    """Swap `source` with `name` in the directory `parent_fd`; no reader sees either missing.

    Returns:
        False when the file system cannot; nothing has changed then.

    Raises:
        FileNotFoundError: one of them does not exist.
    """
    return _rename(source_fd, source, parent_fd, name, _RENAME_EXCHANGE)


def _rename(source_fd: int, source: str, parent_fd: int, name: str, flag: int) -> bool:
    if _renameat2 is None:
        return False
    if _renameat2(source_fd, os.fsencode(source), parent_fd, os.fsencode(name), flag) == 0:
        return True
    code = ctypes.get_errno()
    if code in _UNSUPPORTED:
        return False
    raise OSError(code, os.strerror(code), source, None, name)
