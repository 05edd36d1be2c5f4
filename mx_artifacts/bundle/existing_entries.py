"""View an entry that stands in a cache as a packed one is, so that the same rules judge both."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from mx_artifacts.bundle.entry import EntryFile, EntryView, ReadContent
from mx_artifacts.bundle.rules import PackRules
from mx_artifacts.bundle.tree import scan_entry, scan_tree
from mx_artifacts.errors import NothingToPublishError

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def view_standing(root: str, entry: str, rules: PackRules) -> EntryView:
    """Return the entry `entry` of the cache `root`, a path without links.

    It has what `rules` would ship of it, and no age: nobody waits for it to be committed.

    Raises:
        OSError: part of it cannot be read, or is something else than files and directories.
    """
    tree = scan_entry(root, entry, rules)
    for skipped in tree.skipped:
        if not skipped.reason.startswith("excluded by "):
            raise OSError(0, skipped.reason, skipped.path)
    members = [member for member in tree.members if not member.is_dir]
    files = {m.path: EntryFile(m.stamp.size, m.stamp.mtime_ns) for m in members}
    content = _content(root, {member.path: member.source for member in members})
    return EntryView(entry, files, content=content, root=root, age_seconds=math.inf)


def count_entries(root: Path, rules: PackRules) -> int:
    """Return how many entries a root holds; none when it is absent or cannot be listed."""
    try:
        members = scan_tree(root, rules).members
    except NothingToPublishError:
        return 0
    return len({rules.entry_of(member.path) for member in members if not member.is_dir})


def _content(root: str, sources: Mapping[str, str]) -> ReadContent:
    def read(path: str, count: int, offset: int) -> bytes:
        descriptor = _open(f"{root}/{sources[path]}")
        try:
            return os.pread(descriptor, count, offset)
        finally:
            os.close(descriptor)

    return read


def _open(path: str) -> int:
    with suppress(PermissionError):  # leaving the access time alone is for the file's owner
        return os.open(path, _FLAGS | os.O_NOATIME)
    return os.open(path, _FLAGS)
