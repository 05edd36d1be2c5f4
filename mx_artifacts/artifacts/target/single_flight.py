"""One transfer per node: a process waits if another already fetches the same into the same roots.

This only saves transfers. A process that cannot wait, or has waited long enough, fetches by itself.
The installer's own lock prevents two installs into one root at once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from mx_artifacts.artifacts.bundle_root import make_bundle_root, sweep, turn_file
from mx_artifacts.errors import InstallLockedError, UnsafePathError
from mx_artifacts.filesystem.lock import LockFile, locked
from mx_artifacts.filesystem.resolved_path import open_directory
from mx_artifacts.observability.catalogue import FetchWaiting
from mx_artifacts.observability.events import EventSink
from mx_artifacts.runtime.clock import Clock

UNSAID_SECONDS = 0.2
"""A process that holds a turn for less time may only have cleaned up the bundle root."""


@contextmanager
def turn_to_fetch(
    bundle_root: Path,
    artifact_id: str,
    roots: Iterable[Path],
    *,
    timeout_seconds: float,
    clock: Clock,
    events: EventSink,
) -> Iterator[None]:
    """Run the block while no other process that uses `bundle_root` runs one for the same.

    Waits for that for up to `timeout_seconds`. Blocks of one thread must not be nested. Events:
    fetch.waiting (error: what it waits for), once, if it waits.
    """
    places = [os.path.realpath(root) for root in roots]
    wanted = "\0".join((artifact_id, *places))
    name = turn_file(bundle_root, sha256(os.fsencode(wanted)).hexdigest()).name
    with ExitStack() as turn:
        lock = None
        try:
            make_bundle_root(bundle_root)
            sweep(bundle_root)
            lock = LockFile(turn.enter_context(open_directory(bundle_root)), name)
            unsaid_seconds = min(UNSAID_SECONDS, timeout_seconds)
            if not _take(lock, unsaid_seconds, clock, turn) and timeout_seconds > unsaid_seconds:
                error = InstallLockedError(
                    f"another process is fetching artifact {artifact_id} into {', '.join(places)}"
                )
                events(FetchWaiting(error))
                _take(lock, timeout_seconds - unsaid_seconds, clock, turn)
        except (OSError, UnsafePathError):  # a file system without locks, or another user's file
            if lock is not None:
                _remove(lock)
        yield


def _take(lock: LockFile, timeout_seconds: float, clock: Clock, turn: ExitStack) -> bool:
    """Hold a lock, and remove it at the end of `turn`; return whether that came about.

    Raises OSError.
    """
    deadline_seconds = clock.monotonic() + timeout_seconds
    while True:
        left_seconds = max(0.0, deadline_seconds - clock.monotonic())
        try:
            turn.enter_context(locked([lock], left_seconds, clock))
        except InstallLockedError:
            return False
        except FileNotFoundError:  # who held it has removed it
            if left_seconds <= 0:
                return False
        else:
            turn.callback(_remove, lock)
            return True


def _remove(lock: LockFile) -> None:
    with suppress(OSError):
        lock.directory.remove(lock.name)
