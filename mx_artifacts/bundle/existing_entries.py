"""Views an existing entry of a cache like a packed one, so that the same rules judge both."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from mx_artifacts.bundle.entry import EntryFile, EntryView, ReadContent
from mx_artifacts.bundle.rules import PackRules
from mx_artifacts.bundle.tree import EXCLUDED, scan_entry, scan_tree
from mx_artifacts.errors import NothingToPublishError
from mx_artifacts.filesystem.beneath import Directory
from mx_artifacts.filesystem.resolved_path import open_directory

_FLAGS = os.O_RDONLY | os.O_NONBLOCK


@contextmanager
def existing_entry(root: Path, entry: str, rules: PackRules) -> Iterator[EntryView]:
    """Yield the entry `entry` of the cache `root`.

    It has the files that `rules` would ship. Its age is not checked, because nothing waits until it
    is complete.

    Raises:
        OSError: part of it cannot be read, or is neither a file nor a directory.
        UnsafePathError: a stranger's link leads to the root.
    """
    with open_directory(root) as directory:
        tree = scan_entry(directory, entry, rules)
        for skipped in tree.skipped:
            if not skipped.reason.startswith(EXCLUDED):
                raise OSError(0, skipped.reason, skipped.path)
        members = [member for member in tree.members if not member.is_dir]
        files = {m.path: EntryFile(m.stamp.size, m.stamp.mtime_ns) for m in members}
        content = _content(directory, {member.path: member.source for member in members})
        yield EntryView(entry, files, content=content, root=directory, age_seconds=math.inf)


def count_entries(root: Path, rules: PackRules) -> int:
    """Return how many entries a root holds; none when it is absent or cannot be listed."""
    try:
        members = scan_tree(root, rules).members
    except NothingToPublishError:
        return 0
    return len({rules.entry_of(member.path) for member in members if not member.is_dir})


def _content(root: Directory, sources: Mapping[str, str]) -> ReadContent:
    def read(path: str, count: int, offset: int) -> bytes:
        descriptor = _open(root, sources[path])
        try:
            return os.pread(descriptor, count, offset)
        finally:
            os.close(descriptor)

    return read


def _open(root: Directory, path: str) -> int:
    with suppress(PermissionError):  # leaving the access time alone is for the file's owner
        return root.open(path, _FLAGS | os.O_NOATIME)
    return root.open(path, _FLAGS)
