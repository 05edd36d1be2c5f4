"""The fix-up of caches that ninja built: FlashInfer's and TVM-FFI's modules.

Each directory with ninja's state in it is made current for where it will stand (`ninja_state.py`)
and then judged by ninja itself, before it is moved there: what ninja would build again is left out
and reported with ninja's own reason. The module is adapted twice by the same code from the same
bytes, first to the staging directory, where ninja is asked, then to its root.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from mx_artifacts.errors import RelocationError
from mx_artifacts.kinds.base import FixupReport
from mx_artifacts.kinds.ninja.build_log import RAPIDHASH_VERSION
from mx_artifacts.kinds.ninja.module_state import (
    STATE_FILES,
    NinjaModule,
    NotCurrent,
    load_module,
    rapidhash_function,
)
from mx_artifacts.kinds.ninja.program import NinjaFailed, find_ninja, keeps_log, pending_work


def relocation_obstacle() -> str:
    """Say why modules that were built in another root cannot be used on this node, or ""."""
    if find_ninja() is None:
        return "there is no ninja on PATH to adapt it"
    if rapidhash_function() is None:
        return "the Python package rapidhash, which adapting it needs, is not installed"
    return ""


def relocate_ninja_modules(staged: Path, root: Path) -> FixupReport:
    """Make every ninja directory below `staged` current for the same place below `root`.

    One that ninja would build again there is removed from `staged` and reported by its relative
    path. Where ninja cannot be asked, one that was built in this same root is kept and reported
    as unverified, any other one removed. `root` is resolved, as both tools resolve it.

    Raises:
        RelocationError: `staged` is itself a ninja directory.
    """
    obstacle = relocation_obstacle()
    rewritten = 0
    dropped: dict[str, str] = {}
    unverified: dict[str, str] = {}
    for directory in _module_directories(staged):
        name = directory.relative_to(staged).as_posix()
        if directory == staged:
            raise RelocationError(
                f"the root of this artifact is itself a ninja directory (for {root})",
                hint="publish the directory above it",
            )
        if not directory.is_dir():
            continue  # it was in one that was removed
        try:
            module = load_module(directory, staged, Path(os.path.abspath(root)))
            doubt = _adapt(module, obstacle)
            rewritten += 1
            if doubt:
                unverified[name] = doubt
        except (NotCurrent, NinjaFailed) as error:
            shutil.rmtree(directory)
            dropped[name] = str(error)
    return FixupReport(rewritten, dropped, unverified)


def _module_directories(staged: Path) -> list[Path]:
    return [Path(parent) for parent, _, names in os.walk(staged) if STATE_FILES & set(names)]


def _adapt(module: NinjaModule, obstacle: str) -> str:
    """Make a module right for its root; return why nobody can tell whether it is, or ""."""
    if not obstacle and module.log.version != RAPIDHASH_VERSION:
        obstacle = f"its .ninja_log is of version {module.log.version}, whose hashes are not known"
    if obstacle:
        if module.built_in not in (None, os.fsencode(module.root)):
            built_in = os.fsdecode(module.built_in or b"")
            raise NotCurrent(f"built in {built_in}, here its root is {module.root}: {obstacle}")
        module.write(module.root)
        return f"not verified: {obstacle}"
    ninja = find_ninja() or ""
    if not keeps_log(ninja, module.log.version):
        raise NotCurrent(f"{ninja} is of another version and cannot read its .ninja_log")
    module.require_consistent(ninja)
    module.write(module.staged, ninja)
    work = pending_work(ninja, module.directory)
    if work:
        raise NotCurrent(f"ninja would build it again: {work}")
    module.write(module.root, ninja)
    return ""
