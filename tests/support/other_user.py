"""Runs a program as a user who has no passwd entry, as a container under a random user id does.

An interpreter below /root is closed to other users. So the program starts in a mount namespace of
its own, in which the closed directories above what it needs are replaced by empty, open ones that
hold nothing else; the needed directories keep their owners and modes.
"""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import stat
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

UID, GID = 1001230000, 0
"""As OpenShift gives them: a random user in group root."""


@functools.cache
def obstacle() -> str:
    """Say why no program can be run as another user here, or "" if it can."""
    if os.geteuid() != 0:
        return "only root can start programs as another user"
    if not (shutil.which("unshare") and shutil.which("setpriv")):
        return "there is no unshare and setpriv (util-linux)"
    try:
        subprocess.run(["unshare", "--mount", "true"], check=True, capture_output=True)
    except subprocess.CalledProcessError as error:
        return f"no mount namespace: {error.stderr.decode().strip()}"
    return ""


def as_other_user(command: Sequence[str], needed: Iterable[Path]) -> list[str]:
    """Return the command that runs `command` as UID, able to reach the directories `needed`."""
    outermost: list[Path] = []
    for path in sorted({path.resolve() for path in needed}):
        if not any(path.is_relative_to(other) for other in outermost):
            outermost.append(path)
    closed = {path: _closed_above(path) for path in outermost}
    # A tmpfs as it is there anyway, where what is needed is held while its place is hidden.
    lines = ["set -e", "umask 022", "mount -t tmpfs -o mode=1777 none /dev/shm"]
    places = [(shlex.quote(str(path)), n) for n, path in enumerate(outermost) if closed[path]]
    for place, number in places:
        lines += [f"mkdir /dev/shm/{number}", f"mount --rbind {place} /dev/shm/{number}"]
    for directory in sorted({str(each) for each in closed.values() if each}):
        lines.append(f"mount -t tmpfs -o mode=755 none {shlex.quote(directory)}")
    for place, number in places:
        lines += [f"mkdir -p {place}", f"mount --rbind /dev/shm/{number} {place}"]
    lines.append(f'exec setpriv --reuid {UID} --regid {GID} --clear-groups -- "$@"')
    return ["unshare", "--mount", "sh", "-c", "\n".join(lines), "sh", *command]


def _closed_above(path: Path) -> Path | None:
    """Return the topmost directory above `path` that UID may not enter."""
    for directory in reversed(path.parents):
        status = directory.stat()
        needed = stat.S_IXGRP if status.st_gid == GID else stat.S_IXOTH
        if not status.st_mode & needed:
            return directory
    return None
