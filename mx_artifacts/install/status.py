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
    try:
        found = stamp_columns(root, [file.path for file in files])
    except OSError:
        return [not entry.files for entry in entries]
    good = [
        found_size == size
        and stat.S_ISREG(mode)
        and (found_ns == mtime_ns or matches(path, touched))
        for (path, size, _, mtime_ns, _, _), mode, found_size, found_ns in zip(
            files, found.modes, found.sizes, found.mtimes_ns, strict=True
        )
    ]
    left = iter(good)
    return [all(list(islice(left, len(entry.files)))) for entry in entries]
