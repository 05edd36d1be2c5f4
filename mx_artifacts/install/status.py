"""Whether entries are as they were installed, told from their files' status alone."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from itertools import chain, islice
from operator import attrgetter

from mx_artifacts.bulk.status import stamp_columns
from mx_artifacts.install.receipt import InstalledEntry
from mx_artifacts.kinds.signs import matches


def have_status(
    root: str, entries: Sequence[InstalledEntry], touched: tuple[str, ...]
) -> list[bool]:
    """Tell of each entry whether its files have the sizes and times that they were installed with.

    Those that match `touched` may have another time, since a hit moves it. A file that cannot be
    looked at, as when it is absent, has none of these.
    """
    files = list(chain.from_iterable(map(attrgetter("files"), entries)))
    if not files:
        return [True] * len(entries)
    paths, sizes, _, mtimes_ns, _, _ = zip(*files, strict=True)
    try:
        found = stamp_columns(root, paths)
    except OSError:
        return [not entry.files for entry in entries]
    are_files = list(map(stat.S_ISREG, found.modes))
    if all(are_files) and (tuple(found.sizes), tuple(found.mtimes_ns)) == (sizes, mtimes_ns):
        return [True] * len(entries)  # as nearly always
    good = (
        is_file and found_size == file.size and (ns == file.mtime_ns or matches(file.path, touched))
        for file, is_file, found_size, ns in zip(
            files, are_files, found.sizes, found.mtimes_ns, strict=True
        )
    )
    return [all(list(islice(good, len(entry.files)))) for entry in entries]
