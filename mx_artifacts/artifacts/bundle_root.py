"""The bundle root: a directory for bundles beyond the memory budget, and for turns of processes.

Bundles are in files without a name, which vanish with their process. The files by which processes
take turns (turn.py) are locked while they are valid. The kernel frees a lock when its holder dies,
so a file that nobody locks belongs to a dead process. A process id would not show that: pods that
share a bundle root do not share process ids.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from mx_artifacts.errors import InstallLockedError, UnsafePathError, UnusablePlaceError
from mx_artifacts.filesystem.lock import LockFile, locked
from mx_artifacts.filesystem.resolved_path import open_directory, trusted_users
from mx_artifacts.filesystem.writable import check_place
from mx_artifacts.runtime.clock import SYSTEM_CLOCK

_TURN = re.compile(r"turn-[0-9a-f]{64}\.lock")
_HINT = "name a directory that this user may write to with --bundle-root or MX_ARTIFACT_BUNDLE_ROOT"


def check_bundle_root(bundle_root: Path) -> None:
    """Refuse a bundle root in which nothing could be written. Changes nothing.

    Raises:
        UnusablePlaceError: says why.
    """
    check_place(bundle_root, "the bundle root", _HINT)
    try:
        with suppress(FileNotFoundError), open_directory(bundle_root) as directory:
            owner = directory.status().st_uid
            if owner not in trusted_users():
                raise UnusablePlaceError(
                    f"the bundle root {bundle_root} belongs to user {owner}, who could replace "
                    "the files in it",
                    hint=_HINT,
                )
    except UnsafePathError as error:
        raise UnusablePlaceError(f"the bundle root cannot be used: {error}", hint=_HINT) from error


def make_bundle_root(path: Path) -> None:
    """Make it for this user alone; leave it as it is if it is there. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        path.mkdir(0o700)


def turn_file(bundle_root: Path, digest: str) -> Path:
    """Return the file to lock for the turn that a SHA-256 [hex] names."""
    return bundle_root / f"turn-{digest}.lock"


def sweep(bundle_root: Path) -> None:
    """Remove the files of turns in `bundle_root` whose makers died.

    What cannot be removed (another user's) stays, and so does all in a bundle root that this user
    may not list.
    """
    errors = (OSError, InstallLockedError, UnsafePathError)
    with suppress(PermissionError), open_directory(bundle_root) as directory:
        for name in filter(_TURN.fullmatch, directory.names()):
            lock = LockFile(directory, name)
            with suppress(*errors), locked([lock], 0.0, SYSTEM_CLOCK):
                directory.remove(name)
