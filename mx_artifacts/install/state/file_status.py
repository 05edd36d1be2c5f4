"""Decides whether entries are as they were installed, by the status of their files only."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from itertools import chain, islice
from operator import attrgetter

from mx_artifacts.bulk.status import all_are_files, stamp_columns
from mx_artifacts.install.receipts.receipt import InstalledEntry
from mx_artifacts.kinds.usage_markers import matches


def have_status(
    root: str | int,
    entries: Sequence[InstalledEntry],
    touched: tuple[str, ...],
    *,
    in_background: bool = False,
) -> list[bool]:
    """Return for each entry whether its files have the sizes and times of the install.

    `root` is its path, or a descriptor. Files that match `touched` may have another time, because a
    hit changes it. A file that is absent or cannot be read does not match. `in_background`: use one
    core only, and leave the others to more urgent work.
    """
    files = list(chain.from_iterable(map(attrgetter("files"), entries)))
    if not files:
        return [True] * len(entries)
    paths, sizes, _, mtimes_ns, _, _ = zip(*files, strict=True)
    try:
        if all_are_files(root, paths, sizes, mtimes_ns, alone=in_background):
            return [True] * len(entries)  # as nearly always
        found = stamp_columns(root, paths)
    except OSError:
        return [not entry.files for entry in entries]
    good = (
        stat.S_ISREG(mode)
        and size == file.size
        and (mtime_ns == file.mtime_ns or matches(file.path, touched))
        for file, mode, size, mtime_ns in zip(
            files, found.modes, found.sizes, found.mtimes_ns, strict=True
        )
    )
    return [all(list(islice(good, len(entry.files)))) for entry in entries]
