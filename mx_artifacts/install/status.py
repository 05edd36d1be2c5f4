"""Whether files are as they were installed, told from their status alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from mx_artifacts.install.receipt import InstalledFile
from mx_artifacts.kinds.signs import matches


def has_status(root: str, files: Iterable[InstalledFile], touched: tuple[str, ...]) -> bool:
    """Tell whether each of `files` has the size and modification time that it was installed with.

    Those that match `touched` may have another time, since a hit moves it. Raises OSError where
    one cannot be looked at, as when it is absent.
    """
    above = f"{root}/"
    for path, size, _, mtime_ns, *_ in files:
        found = os.lstat(above + path)
        if not stat.S_ISREG(found.st_mode) or found.st_size != size:
            return False
        if found.st_mtime_ns != mtime_ns and not matches(path, touched):
            return False
    return True
