"""List a cache root: what of it goes into a bundle, and what is left out and why."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from mx_artifacts.bulk.status import Stamp
from mx_artifacts.bundle.names import fold, path_fault, printable
from mx_artifacts.bundle.rules import PackRules
from mx_artifacts.errors import NothingToPublishError


class SourceMember(NamedTuple):
    """A file or directory that goes into a bundle.

    `path` is its name there. `source` is what is read: the same, or what a symbolic link at
    `path` points at. Both are relative to the root and "/"-separated.
    """

    path: str
    source: str
    stamp: Stamp
    is_dir: bool


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file, or an entry with all it holds, that is left out. `path` is fit to be printed."""

    path: str
    reason: str


@dataclass(frozen=True)
class SourceTree:
    """A root's members, sorted by path parts, and what is left out of it."""

    members: tuple[SourceMember, ...]
    skipped: tuple[Skipped, ...]


def resolve_root(root: Path) -> str:
    """Return the real directory behind `root`, which may be a symbolic link.

    Raises:
        NothingToPublishError: it does not exist or is no directory.
    """
    try:
        os.stat(root)
        real = os.path.realpath(root, strict=True)
    except OSError as error:
        raise NothingToPublishError(
            f"cache root {root} cannot be read ({error.strerror}): nothing to publish"
        ) from error
    if not os.path.isdir(real):
        raise NothingToPublishError(
            f"cache root {root} is not a directory: nothing to publish",
            hint="name the cache's directory with --root",
        )
    return real


def scan_tree(root: Path, rules: PackRules) -> SourceTree:
    """List what of `root` goes into a bundle; file contents are not read.

    Directories are kept, empty ones too. A symbolic link to a regular file inside the root
    stands for that file; other links, sockets, FIFOs and devices are skipped. What cannot be
    carried (names that are not UTF-8, too long, or equal but for case; unreadable directories)
    takes its whole entry with it, so that no half of one is shipped.

    Raises:
        NothingToPublishError: the root does not exist or cannot be listed.
    """
    walk = _Walk(resolve_root(root), rules)
    walk.descend("")
    return walk.tree()


def scan_entry(root: str, entry: str, rules: PackRules) -> SourceTree:
    """List one entry, a file or a directory, again. `root` comes from `resolve_root`."""
    walk = _Walk(root, rules)
    if walk.look(entry, entry.rpartition("/")[2]):
        walk.descend(entry)
    return walk.tree(entry)


class _Walk:
    def __init__(self, root: str, rules: PackRules) -> None:
        self._root = root
        self._entry_of = rules.entry_of
        self._exclude = _excludes(rules.exclude)
        self._members: list[SourceMember] = []
        self._skipped: list[Skipped] = []
        self._spoiled: dict[str, str] = {}  # entry -> why it is left out

    def tree(self, only_entry: str | None = None) -> SourceTree:
        """Return what was found, without the entries that turned out to be incomplete."""
        members = self._members
        if self._spoiled or only_entry is not None:
            of_which = [(self._entry_of(member.path), member) for member in members]
            members = [
                member
                for entry, member in of_which
                if entry not in self._spoiled and only_entry in (None, entry)
            ]
        # As their parts do: no name has a character before NUL.
        members.sort(key=lambda member: member.path.replace("/", "\0"))
        spoiled = [Skipped(printable(entry), why) for entry, why in self._spoiled.items()]
        skipped = sorted(self._skipped + spoiled, key=lambda skip: skip.path)
        return SourceTree(tuple(members), tuple(skipped))

    def descend(self, path: str) -> None:
        """Look at everything below the directory `path` ("" for the root), itself excepted."""
        pending = [path]
        while pending:
            here = pending.pop()
            try:
                names = sorted(os.listdir(self._absolute(here)))
            except FileNotFoundError:
                continue  # removed since its parent was listed
            except OSError as error:
                if not here:
                    raise NothingToPublishError(
                        f"cache root {self._root} cannot be listed ({error.strerror})",
                        hint="run as the user who owns the cache",
                    ) from error
                self._spoil(here, f"cannot be listed ({error.strerror})")
                continue
            # Twins are rare, so it is only then that each name is compared with those before it.
            twins: dict[str, str] | None = {} if len(set(map(fold, names))) < len(names) else None
            for name in names:
                child = f"{here}/{name}" if here else name
                if self.look(child, name, twins):
                    pending.append(child)

    def look(self, path: str, name: str, twins: dict[str, str] | None = None) -> bool:
        """Take `path` in or leave it out; tell whether it is a directory to descend into.

        `name` is its last part. `twins` holds the folded names of its directory so far, where two
        of them fold alike.
        """
        found = self._find(path, name)
        if found is None:
            return False
        fault = path_fault(path)
        if fault is None and twins is not None:
            twin = twins.setdefault(fold(name), name)
            fault = None if twin == name else f"differs from {twin!r} only by case or Unicode form"
        if fault is not None:
            self._spoil(path, fault)
            return False
        source, status = found
        stamp = Stamp.of(status)
        member = SourceMember(path, source, stamp, stat.S_ISDIR(stamp.mode))
        self._members.append(member)
        return member.is_dir

    def _find(self, path: str, name: str) -> tuple[str, os.stat_result] | None:
        """Return what is to be read for `path` and its status, or leave `path` out."""
        pattern = self._exclude.pattern_for(path, name)
        if pattern is not None:
            self._skip(path, f"excluded by {pattern!r}")
            return None
        try:
            status = os.lstat(self._absolute(path))
        except FileNotFoundError:
            return None  # removed since its directory was listed
        except OSError as error:
            self._spoil(path, f"cannot be read ({error.strerror})")
            return None
        if stat.S_ISLNK(status.st_mode):
            return self._follow(path)
        if not stat.S_ISDIR(status.st_mode) and not stat.S_ISREG(status.st_mode):
            self._skip(path, "neither a file nor a directory")
            return None
        return path, status

    def _follow(self, path: str) -> tuple[str, os.stat_result] | None:
        """Return a link's target inside the root and its status, or skip the link."""
        try:
            target = os.path.realpath(self._absolute(path), strict=True)
            status = os.lstat(target)
        except OSError:
            self._skip(path, "link to nothing")
            return None
        source = os.path.relpath(target, self._root)
        if source == ".." or source.startswith("../"):
            self._skip(path, "link out of the cache root")
        elif not stat.S_ISREG(status.st_mode):
            self._skip(path, "link to something that is not a file")
        elif self._exclude.covers(source):
            self._skip(path, "link to an excluded file")
        else:
            return source, status
        return None

    def _absolute(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def _skip(self, path: str, reason: str) -> None:
        self._skipped.append(Skipped(printable(path), reason))

    def _spoil(self, path: str, reason: str) -> None:
        entry = self._entry_of(path)
        where = "" if entry == path else f"{printable(path)}: "
        self._spoiled.setdefault(entry, where + reason)


class _Patterns:
    """fnmatch patterns, most of the time of none of which a text is."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._each = [(pattern, re.compile(translate(pattern))) for pattern in patterns]
        self._any = re.compile("|".join(map(translate, patterns)))

    def find(self, text: str) -> str | None:
        """Return the first pattern that `text` fits."""
        if not self._each or self._any.match(text) is None:
            return None
        return next(pattern for pattern, expression in self._each if expression.match(text))


class _Excludes:
    """Exclude patterns, as `PackRules.exclude` defines them."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._by_part = _Patterns([pattern for pattern in patterns if "/" not in pattern])
        self._by_path = _Patterns([pattern for pattern in patterns if "/" in pattern])

    def pattern_for(self, path: str, name: str) -> str | None:
        """Return the pattern that excludes `path`, whose last part is `name`, itself, if any."""
        return self._by_part.find(name) or self._by_path.find(path)

    def covers(self, path: str) -> bool:
        """Tell whether `path` or a directory above it is excluded."""
        parts = path.split("/")
        prefixes = (("/".join(parts[: depth + 1]), part) for depth, part in enumerate(parts))
        return any(self.pattern_for(prefix, part) is not None for prefix, part in prefixes)


@lru_cache(maxsize=64)
def _excludes(patterns: tuple[str, ...]) -> _Excludes:
    return _Excludes(patterns)
