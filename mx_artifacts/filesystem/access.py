"""Decides who may read and write installed files: the installer's modes, the cache root's owner."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

DIRECTORY_MODE = 0o755
FILE_MODE = 0o644
EXECUTABLE_MODE = 0o755
"""Mode bits that are always set: an engine may run under another uid than the installer."""


@dataclass(frozen=True)
class Access:
    """The owner and group of a cache root, and whether its group may write.

    Taken from the target's own directory, never from the bundle. An init container that runs as
    root thus leaves a cache which the engine's uid can extend.
    """

    uid: int
    gid: int
    group_write: bool

    @classmethod
    def of(cls, found: os.stat_result) -> Access:
        """Return the rule of a directory, the cache root or the nearest one above it.

        In a sticky directory such as /tmp all may make names, but only change their own: its
        group-write bit is no statement about the group.
        """
        group_write = bool(found.st_mode & stat.S_IWGRP) and not found.st_mode & stat.S_ISVTX
        return cls(found.st_uid, found.st_gid, group_write)

    @property
    def directory_mode(self) -> int:
        """The mode of every directory."""
        return DIRECTORY_MODE | (stat.S_IWGRP if self.group_write else 0)

    def file_mode(self, mode: int) -> int:
        """Return the mode of a file whose own is `mode`.

        Setuid, setgid, sticky and world-writable bits do not survive; execute bits do.
        """
        allowed = EXECUTABLE_MODE if mode & 0o111 else FILE_MODE
        return allowed | (stat.S_IWGRP if self.group_write else 0)

    def apply(self, descriptor: int) -> None:
        """Set mode and, as root, owner of an open file or directory.

        This process must have created it in a place where no other user can replace it.
        """
        found = os.fstat(descriptor)
        is_dir = stat.S_ISDIR(found.st_mode)
        mode = self.directory_mode if is_dir else self.file_mode(found.st_mode)
        if os.geteuid() == 0 and (found.st_uid, found.st_gid) != (self.uid, self.gid):
            os.fchown(descriptor, self.uid, self.gid)
        if stat.S_IMODE(found.st_mode) != mode:
            os.fchmod(descriptor, mode)


def current_umask() -> int:
    """Return the process's umask; asking the system itself would set it, for other threads too."""
    try:
        status = Path("/proc/self/status").read_text()
        return int(re.search(r"^Umask:\s*([0-7]+)", status, re.M)[1], 8)  # type: ignore[index]
    except (OSError, TypeError):
        return 0o777  # so every mode is set explicitly
