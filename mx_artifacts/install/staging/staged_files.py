"""What is done with single files and directories of a staged tree."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from mx_artifacts.core.digest import crc32c, crc32c_hex
from mx_artifacts.install.receipts.receipt import InstalledFile
from mx_artifacts.install.workspace.entries import ancestors

_READ_BYTES = 1024 * 1024


def remove_emptied(tree: Path, dropped: Iterable[str]) -> None:
    """Remove directories in which fix-ups left nothing: an empty one must replace no full one."""
    for path in dropped:
        for above in reversed(ancestors(path)):
            try:
                (tree / above).rmdir()
            except OSError:
                break  # something is in it, or it is gone


def describe(place: str, path: str) -> InstalledFile:
    """Return the file at `place`, as `path`, with the checksum of what it holds. Raises OSError."""
    checksum = 0
    descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        block_bytes = min(found.st_size + 1, _READ_BYTES)
        while block := os.read(descriptor, block_bytes):
            checksum = crc32c(block, checksum)
        # Our own read must not hide the engine's: under relatime only a read of a file whose
        # access time is not past its change time is written down. usage.py looks for that.
        os.utime(descriptor, ns=(found.st_ctime_ns, found.st_mtime_ns))
    finally:
        os.close(descriptor)
    return InstalledFile(
        path, found.st_size, stat.S_IMODE(found.st_mode), found.st_mtime_ns, crc32c_hex(checksum)
    )


def sync_file(place: str) -> None:
    """Return when the file at `place` is on the disk. Raises OSError."""
    descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
