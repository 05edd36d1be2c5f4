"""Installs that were killed between their moves and their receipt: find them, and take them back.

The next install into a root does the same; here it is for who wants none.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from mx_artifacts.filesystem.space import os_errors_translated
from mx_artifacts.install.commit import recover_root
from mx_artifacts.install.journal import is_committed, load_journal
from mx_artifacts.install.workspace.acquire import locked_workspaces
from mx_artifacts.install.workspace.opening import found_workspaces, has_workspace
from mx_artifacts.install.workspace.workspace import JOURNAL_NAME
from mx_artifacts.runtime.clock import SYSTEM_CLOCK, Clock


def unfinished_install(root: Path) -> Path | None:
    """Return the journal of an install into `root` that has no receipt, if there is one.

    It was killed, or is going on. Changes nothing.

    Raises:
        RollbackFailedError: the journal is damaged.
        OSError: it cannot be read.
    """
    with found_workspaces(root) as workspaces:
        for workspace in workspaces:
            journal = load_journal(workspace)
            if journal is not None and not is_committed(journal):
                return workspace.path / JOURNAL_NAME
    return None


def take_back_unfinished(
    roots: Iterable[Path], *, lock_timeout_seconds: float, clock: Clock = SYSTEM_CLOCK
) -> list[Path]:
    """Take back what killed installs moved into an artifact's roots; return those it moved into.

    `roots` are in the artifact's order. Blocks; any thread.

    Raises:
        InstallLockedError: an install holds a root for longer than `lock_timeout_seconds`.
        RollbackFailedError: not all could be taken back; the journal stays.
        InstallError: the operating system refuses something.
    """
    resolved = dict.fromkeys(Path(os.path.realpath(root)) for root in roots)
    unfinished: list[Path] = []
    with os_errors_translated("take back an install"):
        if not any(unfinished_install(root) for root in resolved):
            return []
        used = [root for root in resolved if has_workspace(root)]
        with locked_workspaces(used, lock_timeout_seconds, clock) as spaces:
            unfinished += [space.root for space in spaces if recover_root(space)]
            for space in spaces:
                with suppress(OSError):
                    space.remove_if_unused()
    return unfinished
