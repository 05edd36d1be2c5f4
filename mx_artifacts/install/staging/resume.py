"""Begins to write a bundle's members, and reuses what an earlier, interrupted fetch has written.

Only bytes that match the member index are reused; all others are removed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from mx_artifacts.bundle.index import MappedMember
from mx_artifacts.bundle.spans import Part, parts_of
from mx_artifacts.core.digest import crc32c
from mx_artifacts.filesystem.beneath import Directory
from mx_artifacts.install.staging.tree_writer import TreeWriter
from mx_artifacts.runtime.threads import for_each

_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


def begin_writing(tree: Path, writer: TreeWriter, members: Iterable[MappedMember]) -> list[Part]:
    """Make what has no content, adopt what `tree` has already; return the parts that lack.

    Raises OSError.
    """
    listed = list(members)
    files = {each.path: each for each in listed if not each.is_dir}
    directories = _directories(listed)
    good, there = _keep_what_verifies(tree, files, directories.keys())
    for path in there:
        writer.adopt_directory(path)
    lacking: list[Part] = []
    empty: list[MappedMember] = []
    for member in listed:
        if member.path in good:
            here = good[member.path]
            writer.adopt(member, [(part.position, part.length, part.checksum) for part in here])
            lacking += [part for part in parts_of(member) if part not in here]
        elif member.size:
            lacking += parts_of(member)
        elif member.is_dir:
            writer.make_directory(member.path, member.mtime_ns)
        else:
            empty.append(member)
    writer.make_empty(empty)
    return lacking


def _directories(members: Iterable[MappedMember]) -> dict[str, None]:
    """Return all directories of a bundle, implied ones too, outer before inner ones."""
    found: set[str] = set()
    for member in members:
        path = member.path if member.is_dir else member.path.rpartition("/")[0]
        while path and path not in found:
            found.add(path)
            path = path.rpartition("/")[0]
    return dict.fromkeys(sorted(found))


def _keep_what_verifies(
    tree: Path, members: Mapping[str, MappedMember], directories: Collection[str]
) -> tuple[dict[str, list[Part]], list[str]]:
    """Remove from `tree` all but good parts of `members`; return those parts by path.

    A member with none is not there any more. `directories` are those that may stay; those that do
    are returned too, outer before inner ones.

    Raises OSError.
    """
    found: list[str] = []
    there: list[str] = []
    pending = [""]
    while pending:
        above = pending.pop()
        if above:
            there.append(above)
        with os.scandir(tree / above) as items:
            for item in items:
                path = f"{above}/{item.name}" if above else item.name
                if item.is_dir(follow_symlinks=False) and path in directories:
                    pending.append(path)
                elif path in members and _is_plain(item.stat(follow_symlinks=False)):
                    found.append(path)
                else:
                    _remove(tree / above, item.name)
    good: dict[str, list[Part]] = {}

    def check(path: str) -> None:
        parts = _good_parts(tree / path, members[path])
        if parts or not members[path].size:
            good[path] = parts
        else:
            (tree / path).unlink()

    if found:
        for_each(found, check, "mx-resume")
    return good, there


def _is_plain(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1


def _remove(above: Path, name: str) -> None:
    with Directory(os.open(above, _DIRECTORY_FLAGS), above) as directory:
        directory.remove_tree(name)


def _good_parts(place: Path, member: MappedMember) -> list[Part]:
    """Return the parts of a member that are there."""
    good = []
    with suppress(PermissionError):  # then it is replaced
        descriptor = os.open(place, _READ_FLAGS)
        try:
            size = os.fstat(descriptor).st_size
            if size > member.size:
                return []
            for part in parts_of(member):
                data = os.pread(descriptor, part.length, part.position)
                if len(data) == part.length and crc32c(data) == part.checksum:
                    good.append(part)
        finally:
            os.close(descriptor)
    return good
