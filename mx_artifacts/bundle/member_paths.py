"""The paths of a bundle's members: no two of one name, and not more than a scan may hold."""

from __future__ import annotations

from collections.abc import Sequence

from mx_artifacts.bulk.paths import are_plain_tree
from mx_artifacts.bundle.names import fold, path_fault
from mx_artifacts.core.foreign_text import shown
from mx_artifacts.errors import BundleError, UnsafePathError


def check_paths(
    paths: Sequence[str], are_dirs: Sequence[bool], max_members: int, max_names_bytes: int
) -> None:
    """Check the paths of all members of a bundle.

    Raises:
        UnsafePathError, BundleError: as `path_fault` and `MemberPaths` have it.
    """
    plain = are_plain_tree(paths, are_dirs)
    if plain and len(paths) <= max_members and sum(map(len, paths)) <= max_names_bytes:
        return
    known = MemberPaths(max_members, max_names_bytes)
    for path, is_dir in zip(paths, are_dirs, strict=True):
        fault = path_fault(path)
        if fault is not None:
            raise UnsafePathError(f"member '{shown(path[:80])}': {fault}")
        known.add(path, is_dir)


class MemberPaths:
    """All paths so far, by folded name, with the directories that they imply."""

    def __init__(self, max_members: int, max_names_bytes: int) -> None:
        self._max_members = max_members
        self._max_names_bytes = max_names_bytes
        self._files: dict[str, str] = {}
        self._directories: dict[str, str] = {}
        self._stated: set[str] = set()  # directories with a member of their own
        self._names_bytes = 0
        self._latest_parent = ""  # most members lie beside the one before

    def add(self, path: str, is_dir: bool) -> None:
        key = _key(path)
        known = self._files.get(key)
        if known is None and (not is_dir or key in self._stated):
            known = self._directories.get(key)
        if known is not None:
            raise UnsafePathError(f"members '{shown(known)}' and '{shown(path)}' have one name")
        if is_dir:
            self._stated.add(key)
            self._add_directory(path, key)
        else:
            self._files[key] = path
            self._charge(path)
            parent = path.rpartition("/")[0]
            if parent != self._latest_parent:
                self._add_parents(path)
                self._latest_parent = parent

    def _add_parents(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        if parent:
            self._add_directory(parent, _key(parent))

    def _add_directory(self, path: str, key: str) -> None:
        known = self._directories.get(key)
        if known == path:
            return
        if known is not None:
            raise UnsafePathError(f"directories '{shown(known)}' and '{shown(path)}' have one name")
        if key in self._files:
            raise UnsafePathError(
                f"'{shown(path)}' is a file, but another member needs a directory there"
            )
        self._directories[key] = path
        self._charge(path)
        self._add_parents(path)  # at most names.MAX_DEPTH calls deep

    def _charge(self, path: str) -> None:
        self._names_bytes += len(path)
        if len(self._files) + len(self._directories) > self._max_members:
            raise BundleError(f"bundle has more than {self._max_members} members")
        if self._names_bytes > self._max_names_bytes:
            raise BundleError(f"names exceed {self._max_names_bytes} bytes")


def _key(path: str) -> str:
    key = fold(path)
    return path if key == path else key  # one string in memory where they are equal
