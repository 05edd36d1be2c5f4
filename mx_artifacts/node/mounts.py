"""The mounts that this process sees, and their options."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

_ESCAPED = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    """One mount: where, its file system's type ("ext4"), its own options ("noexec")."""

    point: Path
    type: str
    options: frozenset[str]


def mount_table() -> list[Mount]:
    """Return all mounts in the order of mounting, or none if /proc cannot be read."""
    try:
        lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return []
    return [_mount(line) for line in lines]


def mount_of(path: Path) -> Mount | None:
    """Return the mount of `path` (which need not exist), or None if it is unknown."""
    resolved = Path(os.path.realpath(path))
    points = {resolved, *resolved.parents}
    above = [mount for mount in mount_table() if mount.point in points]
    # Of two on one point, the later one covers the earlier.
    return max(reversed(above), key=lambda mount: len(mount.point.parts), default=None)


def _mount(line: bytes) -> Mount:
    # proc_pid_mountinfo(5): fields 5 and 6 are point and options, the type follows the lone "-".
    # Blanks and backslashes in the point are octal escapes.
    fields, _, rest = line.partition(b" - ")
    point, options = fields.split(b" ")[4:6]
    unescaped = _ESCAPED.sub(lambda match: bytes([int(match[1], 8)]), point)
    return Mount(
        Path(os.fsdecode(unescaped)),
        rest.split(b" ")[0].decode(),
        frozenset(options.decode().split(",")),
    )


NETWORK_TYPES = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "gpfs", "lustre", "nfs", "nfs4", "smb3", "smbfs"}
)
"""Types of file systems on other machines. FUSE file systems may or may not be."""


_IN_MEMORY_TYPES = frozenset({"ramfs", "tmpfs"})


def lies_in_memory(path: Path) -> bool:
    """Return whether files at `path` end with the machine in any case, so that no sync helps."""
    mount = mount_of(path)
    return mount is not None and mount.type in _IN_MEMORY_TYPES


def is_remote(mount: Mount) -> bool:
    """Return whether a mount's files are, or may be, on another machine."""
    return mount.type in NETWORK_TYPES or mount.type.startswith("fuse")


def keeps_access_times(path: Path) -> bool:
    """Return whether reading a file at `path` is sure to move its access time, once it is old."""
    mount = mount_of(path)
    return mount is not None and not is_remote(mount) and not mount.options & {"noatime", "ro"}
