"""Decides whether an artifact is already installed, by its receipt and the status of files only."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from mx_artifacts.errors import ConfigurationError, UnsafePathError
from mx_artifacts.filesystem.files import has_all
from mx_artifacts.filesystem.resolved_path import open_directory
from mx_artifacts.install.base import InstallReport, RootReport
from mx_artifacts.install.receipts.lookup import FoundReceipt, find_receipts, receipts_of_root
from mx_artifacts.install.receipts.receipt import InstalledEntry, Receipt, RootReceipt
from mx_artifacts.install.state.boot import are_as_installed
from mx_artifacts.install.workspace.opening import found_workspaces
from mx_artifacts.install.workspace.workspace import JOURNAL_NAME
from mx_artifacts.kinds.existing_entries import ExistingEntryJudge, no_judgement
from mx_artifacts.kinds.registry import get_kind


def find_installed(
    roots: Mapping[str, Path],
    artifact_id: str,
    judge: ExistingEntryJudge = no_judgement,
    *,
    with_mtimes: bool = False,
) -> InstallReport | None:
    """Return the report of installing `artifact_id` again, if that would change nothing.

    `roots` maps names to directories, the primary root first. According to the newest receipt of
    the artifact, each installed file must exist with its size and mtime (except mtimes that a hit
    changes). If it may have been lost when the machine stopped, it must have its CRC32C, too. Each
    kept entry must exist; if an earlier receipt installed it, it must be as that receipt says. No
    entry may have been dropped, because a new install could have another result. Takes no lock.
    `judge` checks whether kept entries that the receipt calls unusable are still unusable. With
    `with_mtimes`, it checks all kept entries, because their validity depends on the modification
    times of other files. Return None also while an install runs, or after one died.
    """
    primary = next(iter(roots.values()))
    found = find_receipts(primary)
    newest = next((e for e in found if e.receipt.artifact.artifact_id == artifact_id), None)
    if newest is None or not _is_as_installed(newest.receipt, roots, found):
        return None
    roots_now = (_unchanged(root, judge, with_mtimes) for root in newest.receipt.roots)
    return InstallReport(newest.path, tuple(roots_now))


def _is_as_installed(
    receipt: Receipt, roots: Mapping[str, Path], found: Sequence[FoundReceipt]
) -> bool:
    touched = _touched_on_hit(receipt.artifact.kind)
    try:
        return all(
            root.name in roots
            and root.root == os.path.realpath(roots[root.name])
            and not root.dropped
            and not _is_being_changed(Path(root.root))
            and _has_all(Path(root.root), _entries(root))
            and all(
                all(are_as_installed(receipt, entries, touched))
                for receipt, entries in _installed(root, found)
            )
            for root in receipt.roots
        )
    except (OSError, UnsafePathError):
        return False


def _is_being_changed(root: Path) -> bool:
    with found_workspaces(root) as workspaces:
        return any(each.has(JOURNAL_NAME) for each in workspaces)


def _has_all(root: Path, entries: Sequence[str]) -> bool:
    with open_directory(root) as directory:
        return has_all(directory, entries)


def _touched_on_hit(kind: str) -> tuple[str, ...]:
    try:
        return get_kind(kind).signs.touched_on_hit
    except ConfigurationError:  # a caller's own, which is not registered
        return ()


def _installed(
    root: RootReceipt, found: Sequence[FoundReceipt]
) -> Iterator[tuple[RootReceipt, Sequence[InstalledEntry]]]:
    """Yield the entries that were installed, and of kept ones those that an earlier install put
    there, with the receipt that speaks of them."""
    yield root, root.installed
    left = set(root.kept)
    for part in receipts_of_root(found, Path(root.root)) if left else ():
        yield part, [entry for entry in part.installed if entry.entry in left]
        left.difference_update(entry.entry for entry in part.installed)


def _entries(root: RootReceipt) -> tuple[str, ...]:
    return (*(entry.entry for entry in root.installed), *root.kept)


def _unchanged(root: RootReceipt, judge: ExistingEntryJudge, with_mtimes: bool) -> RootReport:
    place, kept = Path(root.root), tuple(sorted(_entries(root)))
    verdicts = {e: judge(place, e, None) for e in (kept if with_mtimes else root.unusable)}
    unusable = {
        entry: verdict.unusable_reason
        for entry, verdict in verdicts.items()
        if verdict.unusable_reason
    }
    return RootReport(
        root.name,
        place,
        installed=(),
        kept=kept,
        dropped={},
        files=0,
        bytes=0,
        unverified={
            entry: verdict.unverified_reason
            for entry, verdict in verdicts.items()
            if verdict.unverified_reason
        },
        same=tuple(entry.entry for entry in root.installed if entry.entry not in unusable),
        unusable=unusable,
    )
