"""Resolves a path that a user names, and decides which links on the way may be followed.

A path may contain symbolic links, above the cache root or as the root itself, and they may belong
to other users. A link of another user may lead only to a directory of the same user. Otherwise that
user could let us work, with our rights, in a directory that is not theirs.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from mx_artifacts.bulk.beneath import DIRECTORY_FLAGS
from mx_artifacts.errors import UnsafePathError
from mx_artifacts.filesystem.beneath import Directory

_PART_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_LINKS = 40  # as the kernel follows


@dataclass(frozen=True)
class ResolvedPath:
    """A path without links. `directory` is to be closed.

    Attributes:
        path: the whole path.
        directory: what of it exists: the directory itself, or the nearest one above it.
        missing: names of the directories below `directory` that do not exist.
        linked_by: the stranger whose link the last part of what was named is, if it is one.
        is_exposed: whether a stranger may rename something on the way to what is last in `path`.
    """

    path: Path
    directory: Directory
    missing: tuple[str, ...]
    linked_by: int | None
    is_exposed: bool


def trusted_users() -> frozenset[int]:
    """Return the users who control this process anyway: root and its own user."""
    return frozenset((0, os.geteuid()))


def is_open_to_others(found: os.stat_result) -> bool:
    """Return whether a stranger may rename what this user has put into a directory."""
    shared = stat.S_IMODE(found.st_mode) & 0o022 and not found.st_mode & stat.S_ISVTX
    return bool(shared) or found.st_uid not in trusted_users()


def resolve_path(path: Path) -> ResolvedPath:
    """Return `path` with all links resolved; its last parts need not exist.

    Raises:
        UnsafePathError: a link of another user leads to a directory that is not theirs.
        NotADirectoryError: something that is no directory is at the end, or on the way.
        OSError: a directory may not be entered, or there are too many links.
    """
    walk = _Walk(path)
    try:
        walk.go()
        return walk.result()
    except BaseException:
        os.close(walk.descriptor)
        raise


def open_directory(path: Path) -> Directory:
    """Return the directory that `path` leads to, to be closed.

    Raises:
        FileNotFoundError: it does not exist.
        UnsafePathError, OSError: as `resolve_path`.
    """
    found = resolve_path(path)
    if found.missing:
        found.directory.close()
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return found.directory


@dataclass(frozen=True)
class _LinkEnd:
    """Marks the end of the parts that come from another user's link."""

    link: str
    owner: int


class _Walk:
    """On the way along a path: at `here`, the directory `descriptor`, before the parts `ahead`."""

    def __init__(self, path: Path) -> None:
        self._ahead: list[str | _LinkEnd] = [*_parts(os.path.join(os.getcwd(), path))]
        self._here = "/"
        self._linked_by: int | None = None
        self._links = 0
        self._is_exposed = False
        self.descriptor = os.open("/", DIRECTORY_FLAGS)

    def go(self) -> None:
        """Continue as long as the path exists."""
        while self._ahead:
            part = self._ahead[-1]
            if isinstance(part, _LinkEnd):
                self._ahead.pop()
                self._end_link(part)
                continue
            self._linked_by = None
            if part == "..":
                self._ahead.pop()
                self._move(os.open("..", DIRECTORY_FLAGS, dir_fd=self.descriptor))
                self._here = os.path.dirname(self._here)
                continue
            self._is_exposed |= is_open_to_others(os.fstat(self.descriptor))
            try:
                inner = os.open(part, _PART_FLAGS, dir_fd=self.descriptor)
            except FileNotFoundError:
                return
            except OSError as error:
                raise OSError(error.errno, error.strerror, self._at(part)) from None
            self._ahead.pop()
            self._enter(part, inner)

    def _enter(self, part: str, inner: int) -> None:
        found = os.fstat(inner)
        if stat.S_ISLNK(found.st_mode):
            try:
                self._follow(part, inner, found.st_uid)
            finally:
                os.close(inner)
        elif stat.S_ISDIR(found.st_mode):
            self._move(inner)
            self._here = self._at(part)
        else:
            os.close(inner)
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self._at(part))

    def _follow(self, part: str, link: int, owner: int) -> None:
        self._links += 1
        if self._links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), self._at(part))
        if owner not in trusted_users():
            self._ahead.append(_LinkEnd(self._at(part), owner))
        target = os.readlink("", dir_fd=link)
        if target.startswith("/"):
            self._move(os.open("/", DIRECTORY_FLAGS))
            self._here = "/"
        self._ahead += _parts(target)

    def _end_link(self, link: _LinkEnd) -> None:
        owner = os.fstat(self.descriptor).st_uid
        if owner != link.owner:
            raise UnsafePathError(
                f"{link.link}, a symbolic link of user {link.owner}, leads to {self._here}, a "
                f"directory of user {owner}",
                hint=f"find out who created the link; if it is right, use the path {self._here}",
            )
        self._linked_by = link.owner

    def _move(self, descriptor: int) -> None:
        os.close(self.descriptor)
        self.descriptor = descriptor

    def _at(self, part: str) -> str:
        return os.path.join(self._here, part)

    def result(self) -> ResolvedPath:
        for part in reversed(self._ahead):
            if isinstance(part, _LinkEnd):
                self._end_link(part)
        missing = tuple(part for part in reversed(self._ahead) if isinstance(part, str))
        if ".." in missing:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._at(missing[0]))
        return ResolvedPath(
            Path(self._here, *missing),
            Directory(self.descriptor, Path(self._here)),
            missing,
            self._linked_by,
            self._is_exposed,
        )


def _parts(path: str | Path) -> list[str]:
    """Return the parts of a path, the last one first."""
    return [part for part in reversed(os.fspath(path).split("/")) if part not in ("", ".")]
