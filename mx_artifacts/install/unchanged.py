"""Entries of an artifact that stand in the root already, as an earlier install put them there.

They are told by receipts, member index and file status alone, so that no byte of them is read at a
source, nor here unless it may have been lost with the machine. A file that the engine has written
to since has another size or modification time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress

from mx_artifacts.bundle.index import MappedMember
from mx_artifacts.install.boot import stand_as_installed
from mx_artifacts.install.receipt import InstalledEntry, RootReceipt


def unchanged_entries(
    groups: Mapping[str, Sequence[str]],
    files: Mapping[str, MappedMember],
    receipts: Iterable[RootReceipt],
    *,
    keep_mtimes: bool,
    touched: tuple[str, ...],
) -> tuple[InstalledEntry, ...]:
    """Return the entries of a bundle that need not be fetched into a root.

    `groups` has the leaves of each entry, and `files` those of them that are files. `receipts` are
    those of that root, newest first. `touched` are patterns of the files whose modification time a
    hit moves, as in `Signs.touched_on_hit`.
    """
    told: set[str] = set()  # of whom a newer receipt has spoken
    unchanged: list[InstalledEntry] = []
    for receipt in receipts:
        same = [
            entry
            for entry in receipt.installed
            if entry.entry not in told
            and entry.entry in groups
            and _is_same(entry, groups[entry.entry], files, keep_mtimes=keep_mtimes)
        ]
        unchanged += compress(same, stand_as_installed(receipt, same, touched))
        told.update(entry.entry for entry in receipt.installed)
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
    for path, size, _, mtime_ns, checksum, arrived in known.files:
        mapped = files.get(path)
        if mapped is None:
            return False
        if keep_mtimes and (arrived is not None or mtime_ns != mapped.mtime_ns):
            return False
        came_size, came = arrived or (size, checksum)
        if came_size != mapped.size or int(came, 16) != mapped.checksum:
            return False
    return True
