"""Says under what conditions a benchmark ran."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any


def cpu_model() -> str:
    """Return the processor's name as Linux gives it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def file_system(path: Path) -> str:
    """Return the type of the file system that `path` is on, and where it is mounted."""
    place, best = path.resolve(), ("unknown", Path("/"))
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mounted, kind = line.split()[:3]
        mount = Path(mounted.replace("\\040", " "))
        if place.is_relative_to(mount) and len(mount.parts) >= len(best[1].parts):
            best = (kind, mount)
    return f"{best[0]} at {best[1]}"


def machine() -> dict[str, Any]:
    """Return what of this machine the figures depend on. The load is of the last minute."""
    return {
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "load_average": round(os.getloadavg()[0], 2),
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "nixl": version("nixl"),
    }
