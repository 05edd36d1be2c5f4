"""Entries of an artifact that stand in the root already, as an earlier install put them there.

They are told by receipts, member index and file status alone, so that no byte of them is read, here
or at a source. A file that the engine has written to since has another size or modification time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from mx_artifacts.bundle.index import MappedMember
from mx_artifacts.core.digest import crc32c_hex
from mx_artifacts.install.receipt import InstalledEntry, InstalledFile, RootReceipt
from mx_artifacts.install.status import has_status


def unchanged_entries(
    root: Path,
    groups: Mapping[str, Sequence[str]],
    files: Mapping[str, MappedMember],
    receipts: Iterable[RootReceipt],
    *,
    keep_mtimes: bool,
    touched: tuple[str, ...],
) -> tuple[InstalledEntry, ...]:
    """Return the entries of a bundle that need not be fetched into `root`, a path without links.

    `groups` has the leaves of each entry, and `files` those of them that are files. `receipts` are
    those of this root, newest first. `touched` are patterns of the files whose modification time a
    hit moves, as in `Signs.touched_on_hit`.
    """
    installed: dict[str, InstalledEntry] = {}
    for receipt in receipts:
        for entry in receipt.installed:
            installed.setdefault(entry.entry, entry)
    unchanged = []
    for name, leaves in groups.items():
        known = installed.get(name)
        if (
            known is not None
            and _is_same(known, leaves, files, keep_mtimes=keep_mtimes)
            and _stands(root, known, touched)
        ):
            unchanged.append(known)
    return tuple(unchanged)


def _is_same(
    known: InstalledEntry,
    leaves: Sequence[str],
    files: Mapping[str, MappedMember],
    *,
    keep_mtimes: bool,
) -> bool:
    """Tell whether an entry came as it would come now. One with empty directories counts as new."""
    if not known.files or len(known.files) != len(leaves):
        return False
    return all(
        file.path in files and _came_so(file, files[file.path], keep_mtimes=keep_mtimes)
        for file in known.files
    )


def _came_so(file: InstalledFile, mapped: MappedMember, *, keep_mtimes: bool) -> bool:
    if keep_mtimes and (file.arrived is not None or file.mtime_ns != mapped.member.mtime_ns):
        return False
    came = file.arrived or (file.size, file.checksum)
    return came == (mapped.member.size, crc32c_hex(mapped.checksum))


def _stands(root: Path, entry: InstalledEntry, touched: tuple[str, ...]) -> bool:
    try:
        return has_status(os.fspath(root), entry.files, touched)
    except OSError:
        return False
