"""Lists a cache root: what goes into a bundle, and what is left out, with reasons."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from mx_artifacts.bulk.listing import Listing, list_directories
from mx_artifacts.bulk.status import LINKED, Stamp
from mx_artifacts.bundle.excludes import excludes
from mx_artifacts.bundle.names import MAX_PART_BYTES, all_ordinary, fold, path_fault, printable
from mx_artifacts.bundle.rules import PackRules
from mx_artifacts.errors import NothingToPublishError
from mx_artifacts.filesystem.beneath import Directory
from mx_artifacts.filesystem.resolved_path import open_directory
from mx_artifacts.runtime.threads import for_each

_LISTED_AT_ONCE = 64
"""Directories: while one thread looks at what they hold, another one lists more."""
_LATEST_NS = 2**63 - 1
"""In the year 2262; a bundle with a later time, or one as far before 1970, is refused (scan.py)."""
_PLAIN = frozenset((stat.S_IFREG, stat.S_IFDIR))
_BEHIND_ALL_NAMES = chr(0x10FFFF) * (MAX_PART_BYTES // 4 + 1)
"""The greatest character, which has 4 bytes, more often than it goes into a name."""


EXCLUDED = "excluded by "
"""Begins the reason of what is left out by its name."""


class SourceMember(NamedTuple):
    """A file or directory that goes into a bundle.

    `path` is its name there. `source` is what is read: the same, or what a symbolic link at
    `path` points at. Both are relative to the root and "/"-separated.
    """

    path: str
    source: str
    stamp: Stamp
    is_dir: bool


_member = partial(tuple.__new__, SourceMember)  # `_make` is not done in C


@dataclass(frozen=True, slots=True)
class SkippedPath:
    """A file, or an entry with all it holds, that is left out. `path` is fit to be printed."""

    path: str
    reason: str


@dataclass(frozen=True)
class SourceTree:
    """A root's members, sorted by path parts, and what is left out of it."""

    members: tuple[SourceMember, ...]
    skipped: tuple[SkippedPath, ...]


def open_root(root: Path) -> Directory:
    """Return the directory that `root`, which may be a symbolic link, leads to; to be closed.

    Raises:
        NothingToPublishError: it does not exist or is no directory.
        UnsafePathError: a stranger's link leads there.
    """
    try:
        return open_directory(root)
    except NotADirectoryError:
        raise NothingToPublishError(
            f"cache root {root} is not a directory: nothing to publish",
            hint="state the directory of the cache with --root",
        ) from None
    except OSError as error:
        raise NothingToPublishError(
            f"cache root {root} cannot be read ({error.strerror}): nothing to publish"
        ) from error


def scan_tree(root: Path, rules: PackRules) -> SourceTree:
    """List what of `root` goes into a bundle, as `scan_directory` does.

    Raises:
        NothingToPublishError, UnsafePathError: as `open_root` and `scan_directory`.
    """
    with open_root(root) as directory:
        return scan_directory(directory, rules)


def scan_directory(root: Directory, rules: PackRules) -> SourceTree:
    """List what of `root` goes into a bundle; file contents are not read.

    Directories are kept, empty ones too. A symbolic link to a regular file inside the root
    is taken for that file; other links, sockets, FIFOs and devices are skipped. What cannot be
    carried (names that are not UTF-8, too long, or equal but for case; unreadable directories)
    takes its whole entry with it, so that no half of one is shipped.

    Raises:
        NothingToPublishError: the root cannot be listed.
    """
    walk = _Walk(root, rules)
    walk.descend("")
    return walk.tree()


def scan_entry(root: Directory, entry: str, rules: PackRules) -> SourceTree:
    """List one entry, a file or a directory, again."""
    walk = _Walk(root, rules)
    if walk.look(entry, entry.rpartition("/")[2]):
        walk.descend(entry)
    return walk.tree(entry)


class _UnreadableEntry(NamedTuple):
    """Why an entry is left out, as found in `directory`."""

    directory: str
    entry: str
    reason: str


class _Walk:
    def __init__(self, root: Directory, rules: PackRules) -> None:
        self._root = root
        self._entry_of = rules.entry_of
        self._exclude = excludes((*rules.exclude, *rules.secrets))
        self._secrets = frozenset(rules.secrets) - set(rules.exclude)
        self._keeps_mtimes = rules.keep_mtimes
        self._members: list[SourceMember] = []
        self._skipped: list[SkippedPath] = []
        self._spoiled: list[_UnreadableEntry] = []

    def tree(self, only_entry: str | None = None) -> SourceTree:
        """Return what was found, without the entries that turned out to be incomplete."""
        members = self._members
        faults: dict[str, str] = {}
        # Of what an entry has against it the first counts, in the order in which a walk comes by
        # that goes into the last directory first.
        for fault in sorted(self._spoiled, key=_latest_directory_first, reverse=True):
            faults.setdefault(fault.entry, fault.reason)
        if faults or only_entry is not None:
            of_which = [(self._entry_of(member.path), member) for member in members]
            members = [
                member
                for entry, member in of_which
                if entry not in faults and only_entry in (None, entry)
            ]
        # As their parts do: no name has a character before NUL.
        members.sort(key=lambda member: member.path.replace("/", "\0"))
        spoiled = [SkippedPath(printable(entry), why) for entry, why in faults.items()]
        skipped = sorted(self._skipped + spoiled, key=lambda skip: skip.path)
        return SourceTree(tuple(members), tuple(skipped))

    def descend(self, path: str) -> None:
        """Look at everything below the directory `path` ("" for the root), itself excepted."""
        level = [path]
        while level:
            below: list[str] = []

            def look_into(some: Sequence[str], below: list[str] = below) -> None:
                listings = list_directories(self._root.descriptor, [here or "." for here in some])
                held = [
                    [f"{here}/{name}" for name in listing.names] if here else list(listing.names)
                    for here, listing in zip(some, listings, strict=True)
                ]
                ordinary = all_ordinary([path for paths in held for path in paths])
                for here, listing, paths in zip(some, listings, held, strict=True):
                    below += self._look_at_all(here, listing, paths, ordinary)

            starts = range(0, len(level), _LISTED_AT_ONCE)
            for_each([level[at : at + _LISTED_AT_ONCE] for at in starts], look_into, "mx-scan")
            level = below

    def _look_at_all(
        self, here: str, listing: Listing, paths: Sequence[str], ordinary_names: bool
    ) -> list[str]:
        """Take in what the directory `here` holds; return the directories to descend into.

        `ordinary_names`: whether the `paths` in it are known to be.
        """
        names, stamps, error = listing
        if error:
            self._unlisted(here, error)
            return []
        modes = [stamp.mode for stamp in stamps]
        kinds = list(map(stat.S_IFMT, modes))
        ordinary = _PLAIN.issuperset(kinds) and max(modes, default=0) < LINKED
        ordinary = ordinary and (ordinary_names or all_ordinary(paths))
        ordinary = ordinary and not any(map(self._time_fault, stamps))
        if ordinary and self._go_in(names, paths):
            are_dirs = [kind == stat.S_IFDIR for kind in kinds]
            self._members += list(map(_member, zip(paths, paths, stamps, are_dirs, strict=True)))
            return [path for path, is_dir in zip(paths, are_dirs, strict=True) if is_dir]
        # Twins are rare, so it is only then that each name is compared with those before it.
        twins: dict[str, str] | None = {} if len(set(map(fold, names))) < len(names) else None
        each = sorted(zip(names, paths, stamps, strict=True))
        return [path for name, path, stamp in each if self.look(path, name, stamp, twins)]

    def _go_in(self, names: Sequence[str], paths: Sequence[str]) -> bool:
        """Return whether all files and directories with these ordinary paths are packed."""
        keys = set("\0".join(names).lower().split("\0")) if names else set()
        return len(keys) == len(names) and not self._exclude.find_any(names, paths)

    def _unlisted(self, here: str, error: int) -> None:
        if error == errno.ENOENT:
            return  # removed since its parent was listed
        if here and error in (errno.ELOOP, errno.ENOTDIR):
            self._spoil(here, "was replaced while packed", here)
            return
        reason = f"cannot be listed ({os.strerror(error)})"
        if not here:
            raise NothingToPublishError(
                f"cache root {self._root.path} {reason}",
                hint="run as the user who owns the cache",
            )
        self._spoil(here, reason, here)

    def look(
        self,
        path: str,
        name: str,
        stamp: Stamp | None = None,
        twins: dict[str, str] | None = None,
    ) -> bool:
        """Take `path` in or leave it out; return whether it is a directory to descend into.

        `name` is its last part, `stamp` what was found there, if anything was. `twins` holds the
        folded names of its directory so far, where two of them fold alike.
        """
        found = self._find(path, name, stamp)
        if found is None:
            return False
        fault = path_fault(path) or self._time_fault(found[1]) or self._owner_fault(*found)
        if fault is None and twins is not None:
            twin = twins.setdefault(fold(name), name)
            fault = None if twin == name else f"differs from {twin!r} only by case or Unicode form"
        if fault is not None:
            self._spoil(path, fault)
            return False
        source, stamp = found
        member = SourceMember(path, source, stamp, stat.S_ISDIR(stamp.mode))
        self._members.append(member)
        return member.is_dir

    def _time_fault(self, stamp: Stamp) -> str | None:
        if not self._keeps_mtimes or abs(stamp.mtime_ns) <= _LATEST_NS or stat.S_ISDIR(stamp.mode):
            return None
        return "modification time is out of range"

    def _owner_fault(self, source: str, stamp: Stamp) -> str | None:
        """Refuse a file if the owner of the root may have linked it there under this name."""
        if not stamp.mode & LINKED:
            return None
        try:
            found = self._root.status_of(source)
        except OSError:
            return "changed while packed"
        if Stamp.of(found) == stamp and found.st_uid == self._root.status().st_uid:
            return None
        return "has another name elsewhere, and not the owner of the cache root"

    def _find(self, path: str, name: str, stamp: Stamp | None) -> tuple[str, Stamp] | None:
        """Return what is to be read for `path` and its stamp, or leave `path` out."""
        pattern = self._exclude.pattern_for(path, name)
        if pattern is not None:
            is_secret = pattern in self._secrets
            why = ", because it may hold a secret" if is_secret else ""
            self._skip(path, f"{EXCLUDED}{pattern!r}{why}")
            return None
        if stamp is None or not stamp.mode:
            try:
                stamp = Stamp.of(self._root.status_of(path))
            except FileNotFoundError:
                return None  # removed since its directory was listed
            except OSError as error:
                self._spoil(path, f"cannot be read ({error.strerror})")
                return None
        kind = stat.S_IFMT(stamp.mode)
        if kind == stat.S_IFLNK:
            return self._follow(path)
        if kind not in _PLAIN:
            self._skip(path, "neither a file nor a directory")
            return None
        return path, stamp

    def _follow(self, path: str) -> tuple[str, Stamp] | None:
        """Return a link's target inside the root and its stamp, or skip the link."""
        try:
            target = os.path.realpath(f"{self._root.path}/{path}", strict=True)
        except OSError:
            self._skip(path, "link to nothing")
            return None
        source = os.path.relpath(target, self._root.path)
        if source == ".." or source.startswith("../"):
            self._skip(path, "link out of the cache root")
            return None
        try:
            status = self._root.status_of(source)  # whatever the path leads to by now
        except OSError:
            self._skip(path, "link to nothing")
            return None
        if not stat.S_ISREG(status.st_mode):
            self._skip(path, "link to something that is not a file")
        elif self._exclude.covers(source):
            self._skip(path, "link to an excluded file")
        else:
            return source, Stamp.of(status)
        return None

    def _skip(self, path: str, reason: str) -> None:
        self._skipped.append(SkippedPath(printable(path), reason))

    def _spoil(self, path: str, reason: str, directory: str | None = None) -> None:
        entry = self._entry_of(path)
        where = "" if entry == path else f"{printable(path)}: "
        found_in = path.rpartition("/")[0] if directory is None else directory
        self._spoiled.append(_UnreadableEntry(found_in, entry, where + reason))


def _latest_directory_first(fault: _UnreadableEntry) -> tuple[str, ...]:
    """Return what sorts faults: a directory behind all that it holds, the root last."""
    return (*(fault.directory.split("/") if fault.directory else ()), _BEHIND_ALL_NAMES)
