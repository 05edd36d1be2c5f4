"""What becomes of the entries that stood in a root before: told, never changed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from mx_artifacts.install.base import RootInstall
from mx_artifacts.install.receipt import InstalledEntry
from mx_artifacts.install.staging import StagedTree
from mx_artifacts.install.verify import entry_state


@dataclass
class KeptEntries:
    """The kept entries of a root, told apart; see `RootReport`. The rest is other, but fit."""

    same: list[str] = field(default_factory=list)
    unusable: dict[str, str] = field(default_factory=dict)
    unverified: dict[str, str] = field(default_factory=dict)


def judge_kept(
    install: RootInstall, root: Path, staged: StagedTree, kept: Iterable[str]
) -> KeptEntries:
    """Judge the entries `kept` of `root`, a path without links, beside what was staged for it.

    One that is what was staged needs no further judgement: the fix-ups have judged that.
    """
    told = KeptEntries()
    fetched = {entry.entry: entry for entry in staged.entries}
    for entry in kept:
        ours = fetched.get(entry)
        if ours is not None and _is_same(root, ours, with_mtimes=install.keep_mtimes):
            told.same.append(entry)
            if entry in staged.unverified:
                told.unverified[entry] = staged.unverified[entry]
            continue
        verdict = install.judge(root, entry, staged.directory if ours is not None else None)
        if verdict.fault:
            told.unusable[entry] = verdict.fault
        elif verdict.doubt:
            told.unverified[entry] = verdict.doubt
    return told


def _is_same(root: Path, entry: InstalledEntry, *, with_mtimes: bool) -> bool:
    try:
        if with_mtimes and any(
            os.lstat(root / file.path).st_mtime_ns != file.mtime_ns for file in entry.files
        ):
            return False
        return entry_state(root, entry).state == "intact"
    except OSError:
        return False  # the judge meets the same obstacle, and says so
