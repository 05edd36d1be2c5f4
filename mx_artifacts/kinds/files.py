"""Writing into a staged tree, on behalf of fix-ups."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def overwrite(path: Path, content: bytes) -> None:
    """Replace the content of `path`, whatever its mode; mode and mtime stay."""
    status = path.stat()
    fresh = path.with_name(path.name + ".mx-artifacts")
    fresh.write_bytes(content)
    fresh.chmod(stat.S_IMODE(status.st_mode))
    os.utime(fresh, ns=(status.st_atime_ns, status.st_mtime_ns))
    fresh.replace(path)
