"""Decides when a Triton key directory is committed (triton/runtime/cache.py, FileCacheManager).

Every file appears by rename, and the group file last. Some directories have no group file: those of
helper libraries and of autotune results, which have one file each.
"""

from __future__ import annotations

import os
from collections.abc import Set
from pathlib import Path

from mx_artifacts.bundle.entry import COMMIT_SECONDS, EntryView
from mx_artifacts.core.foreign_text import shown
from mx_artifacts.errors import UnsafePathError
from mx_artifacts.kinds.base import EntryVerdict
from mx_artifacts.kinds.entry_checks import binary_fault, json_fault, names_in
from mx_artifacts.kinds.triton.group_files import (
    GROUP_PREFIX,
    MAX_GROUP_FILE_BYTES,
    IncompleteGroup,
    check_children,
    group_children,
    is_key_directory,
)

_WITHOUT_GROUP = (".so", ".autotune.json")
_LOADED = (".json", ".cubin", ".hsaco")
_BREAKS_HITS = "; Triton fails on it at a hit, and does not compile again"
"""It looks only whether a group's files exist (CompiledKernel reads the rest without a check)."""
_UNCOMMITTED = "it has no group file, so its compiler has not committed it"


def key_directories(entry: EntryView) -> list[str]:
    """Return the directories of an entry that are, or hold what is in, Triton key directories."""
    found: set[str] = set()
    for path in entry.files:
        directory, _, name = path.rpartition("/")
        if directory not in found and (
            name.startswith(GROUP_PREFIX) or is_key_directory(directory.rpartition("/")[2])
        ):
            found.add(directory)
    return sorted(found)


def key_directory_fault(
    entry: EntryView, directory: str, *, allow_uncommitted: bool = False
) -> str | None:
    """Refuse a key directory that is not committed, damaged, or mixed of two compilations.

    With `allow_uncommitted` one that has no group at all passes; installing drops it.
    """
    names = names_in(entry, directory)
    groups = [name for name in names if name.startswith(GROUP_PREFIX)]
    if not groups:
        plain = all(name.endswith(_WITHOUT_GROUP) for name in names)
        if not plain and not allow_uncommitted:
            return _UNCOMMITTED
    for name in groups:
        fault = _group_fault(entry, directory, name, {*names})
        if fault is not None:
            return fault
    for name in names:
        if name.endswith(".json") and name not in groups:  # which have been read
            fault = json_fault(entry, f"{directory}/{name}")
            if fault is not None:
                return fault + _BREAKS_HITS
    return None


def loaded_fault(entry: EntryView) -> str | None:
    """Refuse empty or cut-off libraries and device code, which Triton would treat as a hit."""
    fault = binary_fault(entry)
    return fault and fault + _BREAKS_HITS


def _group_fault(entry: EntryView, directory: str, name: str, names: Set[str]) -> str | None:
    group = entry.files[f"{directory}/{name}"]
    if group.size > MAX_GROUP_FILE_BYTES:
        return f"{name} is damaged: too long"
    try:
        children = group_children(name, entry.read(f"{directory}/{name}"))
        check_children(directory.rpartition("/")[2], name, children, names)
    except (IncompleteGroup, UnsafePathError) as fault:
        return str(fault)
    for child in children:
        file = entry.files[f"{directory}/{child}"]
        if not file.size:
            return f"{child} is empty{_BREAKS_HITS if child.endswith(_LOADED) else ''}"
        # Only while it is young: copying a cache leaves its times in any order.
        if file.mtime_ns > group.mtime_ns and entry.age_seconds < COMMIT_SECONDS:
            return f"{child} is newer than {name}: it is being compiled again"
    return None


def judge_existing_groups(entry: EntryView, root: Path, fetched: Path | None) -> EntryVerdict:
    """Refuse an entry that exists in `root` while one of its groups points elsewhere.

    If the other place does not exist, that is a miss; if it exists, Triton reads it instead. The
    other place may be the same directory under another name. Groups must have passed
    `key_directory_fault`.
    """
    for directory in key_directories(entry):
        for name in names_in(entry, directory):
            if name.startswith(GROUP_PREFIX):
                children = group_children(name, entry.read(f"{directory}/{name}"))
                for child, path in children.items():
                    fault = _elsewhere(path, root / directory / child)
                    if fault:
                        inside = directory[len(entry.path) + 1 :]
                        where = f"{inside}/{name}" if inside else name
                        return EntryVerdict(f"{where} points at {shown(path)}, {fault}")
    return EntryVerdict()


def _elsewhere(path: str, here: Path) -> str:
    if path == str(here):
        return ""
    try:
        return "" if os.path.samefile(path, here) else "which is another file than the one here"
    except (OSError, ValueError):
        return "which is not there"
