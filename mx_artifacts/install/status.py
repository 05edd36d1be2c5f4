"""Whether files are as they were installed, told from their status alone."""

from __future__ import annotations

import stat
from collections.abc import Iterable

from mx_artifacts.bulk.status import stamps_of
from mx_artifacts.install.receipt import InstalledFile
from mx_artifacts.kinds.signs import matches


def has_status(root: str, files: Iterable[InstalledFile], touched: tuple[str, ...]) -> bool:
    """Tell whether each of `files` has the size and modification time that it was installed with.

    Those that match `touched` may have another time, since a hit moves it. Raises OSError where
    one cannot be looked at, as when it is absent.
    """
    files = list(files)
    stamps = stamps_of(root, [file.path for file in files])
    for (path, size, _, mtime_ns, *_), found in zip(files, stamps, strict=True):
        if not stat.S_ISREG(found.mode) or found.size != size:
            return False
        if found.mtime_ns != mtime_ns and not matches(path, touched):
            return False
    return True
