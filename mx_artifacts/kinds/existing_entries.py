"""Return whether an entry that exists in a root will be used there, by its kind's own rules."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from mx_artifacts.bundle.entry import MAX_READ_BYTES
from mx_artifacts.bundle.existing_entries import existing_entry
from mx_artifacts.errors import UnsafePathError
from mx_artifacts.filesystem.regular_file import read_regular_file
from mx_artifacts.filesystem.resolved_path import open_directory
from mx_artifacts.kinds.base import CacheKind, EntryVerdict

ExistingEntryJudge = Callable[[Path, str, "Path | None"], EntryVerdict]
"""Judges an entry of a root (without links) beside its fetched tree, see `ExistingEntryRule`."""

_LINK = "it is a symbolic link; the installer does not look through it"


def no_judgement(root: Path, entry: str, fetched: Path | None) -> EntryVerdict:
    """Take every existing entry for fit."""
    return EntryVerdict()


def existing_entry_judge(kind: CacheKind) -> ExistingEntryJudge:
    """Return the judge of the kind's entries. It never raises: what it cannot view is not fit."""
    return partial(_judge, kind)


def _judge(kind: CacheKind, root: Path, entry: str, fetched: Path | None) -> EntryVerdict:
    is_link = os.path.islink(root / entry)
    if fetched is not None and (fetched / entry).is_dir() != (root / entry).is_dir():
        if is_link:
            return EntryVerdict(_LINK, is_unreadable=True)
        return EntryVerdict("there is a file where a directory should be, or the reverse")
    try:
        with existing_entry(root, entry, kind.pack) as view:
            fault = kind.pack.fault_of(view) if view.files else _lack(entry, fetched)
            if fault is not None:
                return EntryVerdict(fault)
            return (
                kind.existing_entry_rule(view, root, fetched)
                if kind.existing_entry_rule
                else EntryVerdict()
            )
    except UnsafePathError as error:
        return EntryVerdict(str(error), is_unreadable=True)
    except OSError as error:
        if is_link:
            return EntryVerdict(_LINK, is_unreadable=True)
        why = f"{error.filename or entry}: {error.strerror or error}"
        return EntryVerdict(why, is_unreadable=True)


def _lack(entry: str, fetched: Path | None) -> str | None:
    """Refuse an empty directory where the fetched one has files."""
    below = (fetched / entry).rglob("*") if fetched is not None else ()
    return "it is empty" if any(path.is_file() for path in below) else None


def fetched_differs(entry_path: str, root: Path, fetched: Path | None) -> bool:
    """Return whether the file at `entry_path` is in both trees, and not known to be the same."""
    if fetched is None or not (fetched / entry_path).is_file():
        return False
    try:
        theirs = read_regular_file(fetched / entry_path, MAX_READ_BYTES)
        with open_directory(root) as directory:
            return directory.read(entry_path, MAX_READ_BYTES) != theirs
    except (OSError, ValueError):  # no regular file, or a longer one
        return True
