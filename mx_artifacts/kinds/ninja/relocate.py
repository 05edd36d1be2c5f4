"""The fix-up of caches that ninja built: FlashInfer's and TVM-FFI's modules.

Each directory with ninja's state is judged by ninja's own rules for its future place
(`pending_work.py`), and made current for that place (`module_state.py`), before it is moved there.
Modules that ninja would build again are left out and reported, with the reason. So are modules that
we cannot judge, because their build file has constructs that FlashInfer and TVM-FFI do not write.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from mx_artifacts.core.foreign_text import shown
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
from mx_artifacts.kinds.ninja.program import find_ninja, keeps_log


def relocation_obstacle() -> str:
    """Say why modules that were built in another root cannot be used on this node, or ""."""
    if find_ninja() is None:
        return "it cannot be adapted, because ninja is not on PATH"
    if rapidhash_function() is None:
        return "the Python package rapidhash, which adapting it needs, is not installed"
    return ""


def relocate_ninja_modules(staged: Path, root: Path) -> FixupReport:
    """Make every ninja directory below `staged` current for the same place below `root`.

    A directory that ninja would build again there is removed from `staged` and reported by its
    relative path. If this is unknown, a directory that was built in this same root is kept and
    reported as unverified; any other one is removed. `root` is resolved, as both tools resolve it.

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
                hint="publish its parent directory",
            )
        if not directory.is_dir():
            continue  # it was in one that was removed
        try:
            module = load_module(directory, staged, Path(os.path.abspath(root)))
            doubt = _adapt(module, obstacle)
            rewritten += 1
            if doubt:
                unverified[name] = doubt
        except NotCurrent as error:
            shutil.rmtree(directory)
            dropped[name] = str(error)
    return FixupReport(rewritten, dropped, unverified)


def _module_directories(staged: Path) -> list[Path]:
    return [Path(parent) for parent, _, names in os.walk(staged) if STATE_FILES & set(names)]


def _adapt(module: NinjaModule, obstacle: str) -> str:
    """Make a module current for its root; return why this cannot be verified, or ""."""
    if not obstacle and module.log.version != RAPIDHASH_VERSION:
        obstacle = f"its .ninja_log is of version {module.log.version}, whose hashes are not known"
    if obstacle:
        if module.built_in not in (None, os.fsencode(module.root)):
            built_in = shown(module.built_in or b"")
            raise NotCurrent(f"built in {built_in}, here its root is {module.root}: {obstacle}")
        module.write(None)
        return f"not verified: {obstacle}"
    ninja, hash_command = find_ninja(), rapidhash_function()
    assert ninja is not None, "else there was an obstacle"
    assert hash_command is not None, "else there was an obstacle"
    if not keeps_log(ninja, module.log.version):
        raise NotCurrent(f"{ninja} is of another version and cannot read its .ninja_log")
    module.require_consistent(hash_command)
    work = module.work_in_root(hash_command)
    if work:
        raise NotCurrent(f"ninja would build it again: {work}")
    module.write(hash_command)
    return ""
