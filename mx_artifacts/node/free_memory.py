"""How much memory a process can still get: of the machine, or of its container if that is less."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

_CGROUP_FILES = (
    ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current"),
    (
        "sys/fs/cgroup/memory/memory.limit_in_bytes",
        "sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)
"""Limit and usage, of version 2 and of version 1, as a container sees its own."""


def free_memory_bytes(root: Path = Path("/")) -> int | None:
    """Return the bytes that are free, None where the system does not say. `root` is for tests.

    A container's page cache counts as used, so this errs on the side of less.
    """
    found: list[int] = []
    with suppress(OSError):
        available = re.search(
            r"^MemAvailable: *(\d+) kB$", (root / "proc/meminfo").read_text(), re.M
        )
        if available is not None:
            found.append(int(available[1]) * 1024)
    for limit, usage in _CGROUP_FILES:
        with suppress(OSError, ValueError):  # "max" is no limit
            found.append(int((root / limit).read_text()) - int((root / usage).read_text()))
    return max(0, min(found)) if found else None
