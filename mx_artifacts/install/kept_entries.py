"""Reports on the entries that were in a root before; it never changes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress

from mx_artifacts.errors import UnsafePathError
from mx_artifacts.filesystem.beneath import Directory
from mx_artifacts.install.base import RootInstall
from mx_artifacts.install.receipts.lookup import FoundReceipt
from mx_artifacts.install.receipts.receipt import InstalledEntry
from mx_artifacts.install.staging.staging import StagedTree
from mx_artifacts.install.state.contents import entry_state
from mx_artifacts.install.state.file_status import have_status
from mx_artifacts.runtime.clock import SYSTEM_CLOCK

LOOK_AGAIN_SECONDS = 1.0
"""What was seen to be unchanged within this is not looked at again before it is judged: with ten
thousand files that is an eighth of a fetch which brings little."""


@dataclass
class KeptEntries:
    """The kept entries of a root, judged apart; see `RootReport`. The rest is other, but fit."""

    same: list[str] = field(default_factory=list)
    unusable: dict[str, str] = field(default_factory=dict)
    unverified: dict[str, str] = field(default_factory=dict)


def judge_kept(
    install: RootInstall, held: Directory, staged: StagedTree, kept: Iterable[str]
) -> KeptEntries:
    """Judge the kept entries `kept` of the root `held`, compared with what was staged for it.

    An entry that is identical to the staged one needs no check: the fix-ups have checked the staged
    one. An entry that has not changed since an earlier install needs no check, either, unless its
    validity depends on modification times.
    """
    judged = KeptEntries()
    fetched = {entry.entry: entry for entry in staged.entries}
    unchanged = _still_unchanged(install, held, staged)
    root = held.path
    for entry in kept:
        if entry in unchanged:
            fault = install.judge(root, entry, None).unusable_reason if install.keep_mtimes else ""
            if fault:
                judged.unusable[entry] = fault
            else:
                judged.same.append(entry)
            continue
        ours = fetched.get(entry)
        if ours is not None and _is_same(held, ours, with_mtimes=install.keep_mtimes):
            judged.same.append(entry)
            if entry in staged.unverified:
                judged.unverified[entry] = staged.unverified[entry]
            continue
        verdict = install.judge(root, entry, staged.directory if ours is not None else None)
        if verdict.unusable_reason:
            judged.unusable[entry] = verdict.unusable_reason
        elif verdict.unverified_reason:
            judged.unverified[entry] = verdict.unverified_reason
    return judged


def mark_changed_unverified(
    judged: KeptEntries,
    held: Directory,
    kept: Iterable[str],
    find: Callable[[], Sequence[FoundReceipt]],
) -> None:
    """Return a doubt for each kept entry without a verdict that changed after its install.

    `find` returns the receipts, newest first; it is called only if they are needed. A change may
    have improved or damaged an entry; sizes and checksums cannot show which.
    """
    rest = {*kept} - {*judged.same, *judged.unusable, *judged.unverified}
    if not rest:
        return
    installed: dict[str, tuple[InstalledEntry, str]] = {}
    for each in find():
        for part in each.receipt.roots:
            if part.root == str(held.path):
                for entry in part.installed:
                    installed.setdefault(entry.entry, (entry, each.path.name))
    for name in sorted(rest & installed.keys()):
        entry, receipt = installed[name]
        if not _is_same(held, entry, with_mtimes=False):
            judged.unverified[name] = (
                f"not verified: it was changed since it was installed (receipt {receipt})"
            )


def _still_unchanged(install: RootInstall, root: Directory, staged: StagedTree) -> set[str]:
    """Return the names of entries that are as they were when nothing needed to be fetched."""
    if SYSTEM_CLOCK.monotonic() - staged.looked_at < LOOK_AGAIN_SECONDS:
        return {entry.entry for entry in staged.unchanged}
    unchanged = have_status(root.descriptor, staged.unchanged, install.touched_on_hit)
    return {entry.entry for entry in compress(staged.unchanged, unchanged)}


def _is_same(root: Directory, entry: InstalledEntry, *, with_mtimes: bool) -> bool:
    try:
        if with_mtimes and any(
            root.status_of(file.path).st_mtime_ns != file.mtime_ns for file in entry.files
        ):
            return False
        return entry_state(root, entry).state == "intact"
    except (OSError, UnsafePathError):
        return False  # the judge meets the same obstacle, and says so
