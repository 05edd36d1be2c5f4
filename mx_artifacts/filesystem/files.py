"""File operations of an install: durable small files, walks that follow no link, removal."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import compress
from pathlib import Path
from typing import Any

from mx_artifacts.bulk.status import stamp_columns
from mx_artifacts.errors import UnsafePathError
from mx_artifacts.filesystem.access import DIRECTORY_MODE, Access

_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_PATH = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC  # needs no read permission


def fsync_directory(path: Path) -> None:
    """Make the names in `path` durable."""
    descriptor = os.open(path, _OPEN_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def nothing() -> None:
    """Do nothing."""


def as_json(document: Any) -> bytes:
    """Return `document` as JSON; its ASCII escapes carry names that are not UTF-8 unharmed."""
    return json.dumps(document, separators=(",", ":")).encode()


def write_json(path: Path, document: Any) -> None:
    """Put `document` at `path`, as `write_durably` does."""
    write_durably(path, as_json(document))


def write_durably(path: Path, content: bytes, before_rename: Callable[[], None] = nothing) -> None:
    """Put `content` at `path`, durably: a reader, even after a power cut, sees all or nothing.

    `before_rename` is called when only the name is left to be made; if it raises, none is. One
    writer in a directory at a time: the temporary name is fixed, so that crashes cannot pile such
    files up.
    """
    temporary = path.with_name(".tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        before_rename()
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fsync_directory(path.parent)


def inode_of(path: str | Path, *, dir_fd: int | None = None) -> int | None:
    """Return the inode number of `path` itself (links not followed), None when it is absent."""
    try:
        return os.stat(path, dir_fd=dir_fd, follow_symlinks=False).st_ino
    except FileNotFoundError:
        return None


@contextmanager
def open_parent(
    root: Path, entry: str, *, create: Access | None = None
) -> Iterator[tuple[int, str]]:
    """Yield (descriptor of the directory that holds `entry`, its last name), following no link.

    The empty entry is the root itself. Directories between `root` and `entry` are made as needed,
    with the access `create`, or not at all when that is None. The descriptor stays right when
    somebody swaps a directory for a link later, so a move relative to it cannot leave the root.

    Raises:
        UnsafePathError: a symbolic link stands on the way.
        FileNotFoundError, NotADirectoryError: a directory on the way is missing, or is none.
    """
    base, parts = (root, entry.split("/")) if entry else (root.parent, [root.name])
    descriptor = os.open(base, _OPEN_PATH)
    try:
        for part in parts[:-1]:
            if create is not None:
                _make_directory(part, descriptor, create)
            inner = _enter(part, descriptor, root, entry)
            os.close(descriptor)
            descriptor = inner
        yield descriptor, parts[-1]
    finally:
        os.close(descriptor)


def stands(root: Path, entry: str) -> bool | None:
    """Return whether something stands at `entry`; None when a file is in its way.

    Raises:
        UnsafePathError: a symbolic link stands on the way.
    """
    try:
        with open_parent(root, entry) as (parent_fd, name):
            return inode_of(name, dir_fd=parent_fd) is not None
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        return None


def has_all(root: Path, entries: Iterable[str]) -> bool:
    """Return whether every entry exists in `root`. Raises UnsafePathError when a link is met."""
    wanted = set(entries)
    return standing_in(root, wanted) == wanted


def standing_in(root: Path, entries: Iterable[str]) -> set[str]:
    """Return those of `entries` that stand in `root`, as `stands` has it."""
    entries = list(entries)
    outermost = list(dict.fromkeys(entry.partition("/")[0] for entry in entries))
    try:
        there = set(compress(outermost, stamp_columns(os.fspath(root), outermost).modes))
    except (FileNotFoundError, NotADirectoryError):
        return set()
    inner = (e for e in entries if "/" in e and e.partition("/")[0] in there)
    return {*there.intersection(entries), *(entry for entry in inner if stands(root, entry))}


def _enter(part: str, descriptor: int, root: Path, entry: str) -> int:
    try:
        return os.open(part, _OPEN_PATH, dir_fd=descriptor)
    except OSError:
        mode = os.stat(part, dir_fd=descriptor, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            raise UnsafePathError(
                f"{part!r}, on the way to {entry!r} in {root}, is a symbolic link",
                hint=f"remove the link, or name the directory it points at instead of {root}",
            ) from None
        raise


def _make_directory(part: str, parent_fd: int, access: Access) -> None:
    try:
        os.mkdir(part, DIRECTORY_MODE, dir_fd=parent_fd)
    except FileExistsError:
        return
    descriptor = os.open(part, _OPEN_DIRECTORY, dir_fd=parent_fd)
    try:
        access.apply(descriptor, os.fstat(descriptor))
    finally:
        os.close(descriptor)


def remove_tree(path: Path) -> None:
    """Remove `path` and all below it, read-only directories too; fine when it is absent.

    Links are removed, never followed.
    """
    if not path.is_symlink() and path.is_dir():
        os.chmod(path, 0o700)
        for base, directories, _ in os.walk(path):
            for name in directories:
                inner = os.path.join(base, name)
                if not os.path.islink(inner):
                    os.chmod(inner, 0o700)
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
