"""Judges existing modules that ninja built: would their engine build them again?"""

from __future__ import annotations

import os
from pathlib import Path

from mx_artifacts.bundle.entry import EntryView
from mx_artifacts.core.foreign_text import shown
from mx_artifacts.kinds.base import EntryVerdict
from mx_artifacts.kinds.existing_entries import fetched_differs
from mx_artifacts.kinds.ninja.build_log import RAPIDHASH_VERSION
from mx_artifacts.kinds.ninja.module_state import (
    BUILD_FILE,
    NotCurrent,
    NotUnderstood,
    load_module,
    rapidhash_function,
)
from mx_artifacts.kinds.ninja.program import find_ninja, keeps_log

_FIT = EntryVerdict()


def judge_existing_module(entry: EntryView, root: Path, fetched: Path | None) -> EntryVerdict:
    """Judge a module that exists in `root` as ninja would; what has no build file is fit."""
    build_file = f"{entry.path}/{BUILD_FILE}"
    if build_file not in entry.files:
        return _FIT
    try:
        module = load_module(root / entry.path, root, root)
    except NotUnderstood as error:
        return EntryVerdict(unverified_reason=f"not verified: {error}")
    except NotCurrent as error:
        return EntryVerdict(str(error), is_unreadable=isinstance(error.__cause__, OSError))
    if module.built_in not in (None, os.fsencode(root)):
        # ninja looks at the old place then, and may be content with what it finds there.
        built_in = shown(module.built_in or b"")
        return EntryVerdict(f"it was built in {built_in}, so its engine would build it again")
    ninja = find_ninja()
    if ninja is None:
        return EntryVerdict(unverified_reason="not verified, because ninja is not on PATH")
    if not keeps_log(ninja, module.log.version):
        return EntryVerdict(f"{ninja} is of another version and cannot read its .ninja_log")
    hash_command = rapidhash_function()
    if hash_command is None:
        return EntryVerdict(
            unverified_reason="not verified: the Python package rapidhash is not installed"
        )
    if module.log.version != RAPIDHASH_VERSION:
        return EntryVerdict(
            unverified_reason="not verified: the hashes of its .ninja_log are not known"
        )
    work = module.pending_work(hash_command)
    if work:
        return EntryVerdict(f"ninja would build it again: {work}")
    if fetched_differs(build_file, root, fetched):
        # Of the two, the engine builds that one again whose commands are not those it would write.
        return EntryVerdict(
            unverified_reason=f"not verified: its {BUILD_FILE} is not the fetched one's"
        )
    return _FIT
