"""Checks free space before anything is written, and translates an OSError for the user."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mx_artifacts.core.chunks import MIB
from mx_artifacts.errors import InstallError, NoSpaceError

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
"""What the operating system says of a full file system."""
SLACK_BYTES = MIB
"""For directories, journal and receipt of a small install."""
RECORD_BYTES = 512
"""For each file's lines in journal and receipt: about 300 bytes with a long name."""


@dataclass(frozen=True)
class Need:
    """What an install writes on the file system that holds `directory`."""

    directory: Path
    sizes_bytes: tuple[int, ...]


def require_space(needs: Iterable[Need]) -> None:
    """Check bytes and inodes on every file system that is written to.

    Raises:
        NoSpaceError: naming the directory, what is needed and what is free [bytes].
    """
    by_device: dict[int, list[Need]] = {}
    for need in needs:
        by_device.setdefault(need.directory.stat().st_dev, []).append(need)
    for group in by_device.values():
        directory = group[0].directory
        found = os.statvfs(directory)
        sizes_bytes = [size for need in group for size in need.sizes_bytes]
        block_bytes = found.f_frsize
        needed_bytes = SLACK_BYTES + sum(
            -(-size // block_bytes) * block_bytes + RECORD_BYTES for size in sizes_bytes
        )
        free_bytes = found.f_bavail * block_bytes
        if needed_bytes > free_bytes:
            raise NoSpaceError(
                f"{directory} needs {needed_bytes} bytes to stage, but has {free_bytes} free"
            )
        if found.f_files and len(sizes_bytes) > found.f_favail:  # btrfs reports no inode counts
            raise NoSpaceError(
                f"{directory} needs {len(sizes_bytes)} inodes, but has {found.f_favail} free"
            )


_HINTS = {
    errno.EACCES: "run as the cache's owner, or name a root that this user may write to",
    errno.EPERM: "run as the cache's owner, or name a root that this user may write to",
    errno.EROFS: "name a root on a file system that is not read-only",
    errno.EBUSY: "something is mounted there, or uses it: end that, then try again",
    errno.ESTALE: "a file server gave it up: mount it again, then try again",
    errno.ELOOP: "a symbolic link took its place meanwhile: find out who works there",
    errno.EXDEV: "part of the root is another file system or image layer; name a root within one",
}

_OTHER_HINT = "check this path and the log of the system, or use another root"


@contextmanager
def os_errors_translated(doing: str) -> Iterator[None]:
    """Turn an OSError into NoSpaceError or InstallError with a next step."""
    try:
        yield
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        message = f"cannot {doing}: {error.strerror or error}{where}"
        if error.errno in NO_SPACE:
            raise NoSpaceError(message) from error
        raise InstallError(message, hint=_HINTS.get(error.errno or 0, _OTHER_HINT)) from error
