"""Compares the contents of a root with its receipt, byte for byte."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from mx_artifacts.core.digest import crc32c, crc32c_hex
from mx_artifacts.errors import UnsafePathError
from mx_artifacts.filesystem.beneath import Directory
from mx_artifacts.filesystem.resolved_path import open_directory
from mx_artifacts.install.receipts.receipt import (
    InstalledEntry,
    InstalledFile,
    Receipt,
    RootReceipt,
)

_READ_BYTES = 1024 * 1024


@dataclass(frozen=True)
class EntryState:
    """An installed entry now; paths of its files that changed or are missing since."""

    entry: str
    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    is_gone: bool = False

    @property
    def state(self) -> str:
        """Return "intact", "changed" (a file is not as it was installed) or "missing"."""
        if self.is_gone:
            return "missing"
        return "changed" if self.changed or self.missing else "intact"


@dataclass(frozen=True)
class RootState:
    """The installed entries of one root."""

    root: str
    entries: tuple[EntryState, ...]


@dataclass(frozen=True)
class VerifyReport:
    """What became of an install."""

    roots: tuple[RootState, ...]

    @property
    def is_intact(self) -> bool:
        """True when every file is as it was installed."""
        return all(entry.state == "intact" for root in self.roots for entry in root.entries)


def verify_receipt(
    receipt: Receipt, *, except_for: Collection[tuple[str, str]] = ()
) -> VerifyReport:
    """Compare size and CRC32C of every installed file with the receipt.

    `except_for` has root and entry of entries to skip, such as those of a later install. It changes
    nothing; access times stay the same if this user owns the files. Modes and mtimes are not
    compared, because an engine may change them (DeepJIT changes the mtime at a hit).

    Raises:
        OSError: an existing file cannot be read.
    """
    return VerifyReport(tuple(_root_state(root, except_for) for root in receipt.roots))


def _root_state(receipt: RootReceipt, except_for: Collection[tuple[str, str]]) -> RootState:
    entries = [each for each in receipt.installed if (receipt.root, each.entry) not in except_for]
    try:
        with open_directory(Path(receipt.root)) as root:
            return RootState(receipt.root, tuple(entry_state(root, entry) for entry in entries))
    except (FileNotFoundError, NotADirectoryError):
        gone = (EntryState(e.entry, (), tuple(f.path for f in e.files), True) for e in entries)
        return RootState(receipt.root, tuple(gone))


def entry_state(root: Directory, entry: InstalledEntry) -> EntryState:
    """Compare one entry with its receipt; raises as `verify_receipt`."""
    states = {file.path: file_state(root, file) for file in entry.files}
    missing = tuple(path for path, state in states.items() if state == "missing")
    changed = tuple(path for path, state in states.items() if state == "changed")
    # One without files is an empty directory.
    is_gone = len(missing) == len(states) if entry.files else not _is_there(root, entry.entry)
    return EntryState(entry.entry, changed, missing, is_gone)


def _is_there(root: Directory, entry: str) -> bool:
    try:
        return root.has(entry)
    except OSError:
        return False


def file_state(root: Directory, file: InstalledFile) -> str:
    """Return "intact", "changed" or "missing"; a link, or one on the way, is a change."""
    try:
        with root.parent_of(file.path) as (parent_fd, name):
            found = os.stat(name, dir_fd=parent_fd, follow_symlinks=False)
            if not stat.S_ISREG(found.st_mode) or found.st_size != file.size:
                return "changed"
            checksum = _checksum(name, parent_fd, file.size)
    except FileNotFoundError:
        return "missing"
    except (NotADirectoryError, UnsafePathError):
        return "changed"
    return "intact" if checksum == file.checksum else "changed"


def _checksum(name: str, parent_fd: int, size: int) -> str:
    """Return the checksum of the first bytes, and one more: it may grow, or be replaced by now."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags | os.O_NOATIME, dir_fd=parent_fd)
    except PermissionError:  # O_NOATIME is for the file's owner
        descriptor = os.open(name, flags, dir_fd=parent_fd)
    checksum, left = 0, size + 1
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "it is no longer a regular file", name)
        while left and (block := os.read(descriptor, min(left, _READ_BYTES))):
            checksum, left = crc32c(block, checksum), left - len(block)
    finally:
        os.close(descriptor)
    return crc32c_hex(checksum)
