"""Holds the workspaces of roots, or a place to stage: finds, makes, and removes them if unused."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from mx_artifacts.errors import InstallLockedError, UnsafePathError
from mx_artifacts.filesystem.lock import locked
from mx_artifacts.install.workspace.opening import open_workspace
from mx_artifacts.install.workspace.workspace import StagingPlace, Workspace
from mx_artifacts.runtime.clock import Clock

_ATTEMPTS = 10
"""Each fails only when another process removes the unused workspace in just that moment."""


@contextmanager
def locked_workspaces(
    roots: Sequence[Path], timeout_seconds: float, clock: Clock
) -> Iterator[list[Workspace]]:
    """Hold the workspaces of `roots`, which are different directories, in their order.

    They are closed when the block ends. When it fails, or a lock is not got, workspaces in which
    nothing is recorded go away.

    Raises:
        InstallLockedError: not all were free within `timeout_seconds`; names the holder.
        UnusablePlaceError, UnsafePathError, OSError: as `open_workspace`.
    """
    spaces: list[Workspace] = []
    try:
        with ExitStack() as stack:
            _hold(roots, clock.monotonic() + timeout_seconds, clock, spaces, stack)
            yield spaces
    except BaseException:
        for space in spaces:
            remove_if_unused(space, clock)
        raise
    finally:
        for space in spaces:
            space.close()


def acquire_staging(root: Path, *, resume: bool) -> tuple[Workspace, StagingPlace]:
    """Return the workspace of `root`, and a directory to stage in; the caller closes both.

    It is new, or with `resume` one that an interrupted fetch left, if there is one.

    Raises:
        UnusablePlaceError, UnsafePathError, OSError: as `open_workspace`.
    """
    for _ in range(_ATTEMPTS - 1):
        with suppress(FileNotFoundError):
            return _new_staging(root, resume)
    return _new_staging(root, resume)


def _new_staging(root: Path, resume: bool) -> tuple[Workspace, StagingPlace]:
    workspace = open_workspace(root)
    try:
        left = workspace.left_staging_place() if resume else None
        return workspace, left or workspace.new_staging_place()
    except BaseException:
        workspace.close()
        raise


def _hold(
    roots: Sequence[Path],
    deadline_seconds: float,
    clock: Clock,
    spaces: list[Workspace],
    stack: ExitStack,
) -> None:
    for attempts_left in reversed(range(_ATTEMPTS)):
        for space in spaces:
            space.close()
        spaces.clear()
        try:
            for root in roots:
                spaces.append(open_workspace(root))  # noqa: PERF401 - known, should the next fail
            left_seconds = max(0.0, deadline_seconds - clock.monotonic())
            locks = [space.lock_file for space in spaces]
            stack.enter_context(locked(locks, left_seconds, clock))
            for space in spaces:
                space.make_directories()  # again: a holder may have removed some until now
                if not space.is_current():
                    raise FileNotFoundError(
                        errno.ENOENT, os.strerror(errno.ENOENT), str(space.directory)
                    )
        except FileNotFoundError:
            stack.close()
            if not attempts_left:
                raise
        else:
            return


def remove_if_unused(space: Workspace, clock: Clock) -> None:
    """Remove it unless another process holds it, which then does so itself."""
    errors = (OSError, InstallLockedError, UnsafePathError)
    with suppress(*errors), locked([space.lock_file], 0.0, clock):
        space.remove_if_unused()
