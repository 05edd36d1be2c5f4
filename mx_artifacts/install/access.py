"""Who may read and write what is installed: the installer's modes, the cache root's owner."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

DIRECTORY_MODE = 0o755
FILE_MODE = 0o644
EXECUTABLE_MODE = 0o755
"""Engines often run under another uid than the installer, so all may read, whatever the umask."""


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
    def of(cls, directory: Path) -> Access:
        """Return the rule of `directory`, or of its parent when it does not exist.

        In a sticky directory such as /tmp all may make names, but only change their own: its
        group-write bit is no statement about the group.
        """
        found = (directory if directory.exists() else directory.parent).stat()
        group_write = bool(found.st_mode & stat.S_IWGRP) and not found.st_mode & stat.S_ISVTX
        return cls(found.st_uid, found.st_gid, group_write)

    def apply(self, target: str | Path | int, found: os.stat_result) -> None:
        """Set mode and, as root, owner of a file or directory (path or descriptor).

        Setuid, setgid, sticky and world-writable bits do not survive; execute bits do.
        """
        if stat.S_ISDIR(found.st_mode):
            mode = DIRECTORY_MODE
        else:
            mode = EXECUTABLE_MODE if found.st_mode & 0o111 else FILE_MODE
        if self.group_write:
            mode |= stat.S_IWGRP
        if os.geteuid() == 0 and (found.st_uid, found.st_gid) != (self.uid, self.gid):
            os.chown(target, self.uid, self.gid)
        if stat.S_IMODE(found.st_mode) != mode:
            os.chmod(target, mode)
