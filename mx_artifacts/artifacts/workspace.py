"""Directories below the bundle root, one for each artifact that is sealed or received.

Whoever makes one holds its flock until it removes it. The kernel frees the lock when its holder
dies, kill -9 included, so a directory that nobody holds is a dead process's, and the next one that
works below the same bundle root removes it. A process id would not tell that: pods that share a
bundle root do not share process ids. The same holds for the files by which processes take turns
(turn.py).
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mx_artifacts.clock import SYSTEM_CLOCK
from mx_artifacts.errors import (
    InstallError,
    InstallLockedError,
    NoSpaceError,
    UnusablePlaceError,
)
from mx_artifacts.install.lock import locked
from mx_artifacts.install.place import check_place
from mx_artifacts.install.space import NO_SPACE

logger = logging.getLogger(__name__)

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PURPOSES = ("bundle", "fetch")
_OURS = re.compile(rf"(?:{'|'.join(_PURPOSES)})-.+-[a-z0-9_]{{8}}")
"""Our names, by `tempfile.mkdtemp`; operators may keep other things in the bundle root."""
_TURN = re.compile(r"turn-[0-9a-f]{64}\.lock")
_HINT = "name a directory that this user may write to with --bundle-root or MX_ARTIFACT_BUNDLE_ROOT"

_held: dict[Path, int] = {}
_held_lock = threading.Lock()


def check_bundle_root(bundle_root: Path) -> None:
    """Refuse a bundle root in which no bundle could be staged. Changes nothing.

    Raises:
        UnusablePlaceError: says why.
    """
    check_place(bundle_root, "the bundle root", _HINT)
    with suppress(FileNotFoundError):
        owner = bundle_root.stat().st_uid
        if owner not in (0, os.geteuid()):
            # An owner may rename what others have in it, also between verification and install.
            raise UnusablePlaceError(
                f"the bundle root {bundle_root} belongs to user {owner}, who could replace what "
                "is staged there",
                hint=_HINT,
            )


def make_workspace(bundle_root: Path, purpose: str, name: str) -> Path:
    """Remove what dead processes left in `bundle_root`; return a new directory in it.

    It is this process's until `remove_workspace`. `purpose` is "bundle" or "fetch".

    Raises:
        UnusablePlaceError: `bundle_root` cannot be made or written to.
        NoSpaceError, InstallError: the file system refuses it all the same.
    """
    assert purpose in _PURPOSES
    check_bundle_root(bundle_root)
    with _translated(bundle_root):
        make_bundle_root(bundle_root)
        sweep(bundle_root)
        while True:
            path = Path(tempfile.mkdtemp(prefix=f"{purpose}-{name}-", dir=bundle_root))
            if _hold(path):
                return path


def remove_workspace(path: Path) -> None:
    """Remove a directory of `make_workspace` and all in it. Idempotent."""
    shutil.rmtree(path, ignore_errors=True)
    with _held_lock:
        descriptor = _held.pop(path, None)
    if descriptor is not None:
        os.close(descriptor)


def turn_file(bundle_root: Path, digest: str) -> Path:
    """Return the file to lock for the turn that a SHA-256 [hex] names."""
    return bundle_root / f"turn-{digest}.lock"


def sweep(bundle_root: Path) -> None:
    """Remove the directories, and the files of turns, in `bundle_root` whose makers died.

    What cannot be removed (another user's) stays: it costs space only. So does all in a bundle
    root that this user may not list.
    """
    try:
        paths = list(bundle_root.iterdir())
    except PermissionError:
        return
    for path in paths:
        if _TURN.fullmatch(path.name):
            with suppress(OSError, InstallLockedError), locked([path], 0.0, SYSTEM_CLOCK):
                path.unlink()
        if not _OURS.fullmatch(path.name):
            continue
        with suppress(OSError):  # held, not ours to open, or removed meanwhile
            descriptor = os.open(path, _DIRECTORY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path)  # under the lock, for `_hold`
                logger.info("removed %s, which a process that died had left", path)
            finally:
                os.close(descriptor)


def make_bundle_root(path: Path) -> None:
    """Make it for this user alone; leave it as it is if it is there. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        path.mkdir(0o700)


def _hold(path: Path) -> bool:
    """Lock a directory that was just made; False when a sweep was faster."""
    try:
        descriptor = os.open(path, _DIRECTORY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        there = path.stat().st_ino == os.fstat(descriptor).st_ino
    except (BlockingIOError, FileNotFoundError):
        there = False
    except OSError as error:  # no locks on this file system, so no sweep can take it either
        logger.debug("%s cannot be locked: %s", path, error)
        there = True
    if not there:
        os.close(descriptor)
        return False
    with _held_lock:
        _held[path] = descriptor
    return True


@contextmanager
def _translated(bundle_root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        kind = NoSpaceError if error.errno in NO_SPACE else InstallError
        raise kind(
            f"bundles cannot be staged in {bundle_root}: {error.strerror or error}",
            hint=_HINT,
        ) from error
