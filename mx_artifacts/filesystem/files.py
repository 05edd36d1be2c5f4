"""Lists directory trees of other users, and makes directories there."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterable
from itertools import compress
from typing import Any

from mx_artifacts.bulk.status import stamp_columns
from mx_artifacts.filesystem.access import Access
from mx_artifacts.filesystem.beneath import PRIVATE_MODE, Directory
from mx_artifacts.filesystem.rename import rename_new


def as_json(document: Any) -> bytes:
    """Return `document` as JSON; its ASCII escapes carry names that are not UTF-8 unharmed."""
    return json.dumps(document, separators=(",", ":")).encode()


def exists(root: Directory, entry: str) -> bool | None:
    """Return whether something is at `entry`; None when a file is in its way.

    Raises:
        UnsafePathError: a symbolic link is on the way.
    """
    try:
        with root.parent_of(entry) as (parent_fd, name):
            os.stat(name, dir_fd=parent_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        return None
    return True


def has_all(root: Directory, entries: Iterable[str]) -> bool:
    """Return whether every entry exists in `root`. Raises UnsafePathError when a link is met."""
    wanted = set(entries)
    return existing_in(root, wanted) == wanted


def existing_in(root: Directory, entries: Iterable[str]) -> set[str]:
    """Return those of `entries` that are in `root`, as `exists` has it."""
    entries = list(entries)
    outermost = list(dict.fromkeys(entry.partition("/")[0] for entry in entries))
    there = set(compress(outermost, stamp_columns(root.descriptor, outermost).modes))
    inner = (e for e in entries if "/" in e and e.partition("/")[0] in there)
    return {*there.intersection(entries), *(entry for entry in inner if exists(root, entry))}


def make_parents(root: Directory, path: str, access: Access, workshop: Directory) -> None:
    """Make the directories between `root` and `path` as needed, with `access`.

    Raises:
        UnsafePathError: a symbolic link is on the way.
        OSError
    """
    end = path.find("/")
    while end >= 0:
        with root.parent_of(path[:end]) as (parent_fd, name):
            place_directory(parent_fd, name, access.apply, workshop)
        end = path.find("/", end + 1)


def place_directory(
    parent_fd: int, name: str, apply: Callable[[int], None], workshop: Directory
) -> bool:
    """Create a directory in a directory of another user; `name` may exist already.

    It is created in the private directory `workshop`, where `apply` gives it owner and mode. At its
    final place, the other user could replace it before that. Returns whether it was created. Raises
    OSError.
    """
    try:
        os.stat(name, dir_fd=parent_fd, follow_symlinks=False)
        return False
    except FileNotFoundError:
        made = f"new-{secrets.token_hex(8)}"
    os.mkdir(made, PRIVATE_MODE, dir_fd=workshop.descriptor)
    try:
        descriptor = workshop.open(made, os.O_RDONLY | os.O_DIRECTORY)
        try:
            apply(descriptor)
        finally:
            os.close(descriptor)
        rename_new(workshop.descriptor, made, parent_fd, name)
    except FileExistsError:
        os.rmdir(made, dir_fd=workshop.descriptor)
        return False
    except BaseException:
        os.rmdir(made, dir_fd=workshop.descriptor)
        raise
    return True
