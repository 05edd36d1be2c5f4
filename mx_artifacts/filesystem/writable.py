"""Checks whether a path can be written, before anything is transferred or made."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from mx_artifacts.errors import UnusablePlaceError


def check_place(path: Path, purpose: str, hint: str) -> Path:
    """Refuse a directory that does not exist and cannot be made, or that is not writable.

    `purpose` ("a cache root") and `hint` are for the message. Returns the directory that exists:
    `path` with links resolved, or the nearest one above it.

    Raises:
        UnusablePlaceError: says why.
    """

    def refuse(why: str) -> UnusablePlaceError:
        return UnusablePlaceError(f"{path} cannot be {purpose}: {why}", hint=hint)

    if "\0" in str(path):
        raise UnusablePlaceError(
            f"{str(path)!r} cannot be {purpose}: a path must not contain a NUL", hint=hint
        )
    try:
        resolved = Path(os.path.realpath(path))
        existing = _nearest_existing(resolved)
        if not existing.is_dir():
            what = "it" if existing == resolved else str(existing)
            raise refuse(f"{what} exists, but is not a directory")
        for part in resolved.relative_to(existing).parts:
            if len(os.fsencode(part)) > name_max_bytes(existing):
                raise refuse(
                    f"a file name there must have at most {name_max_bytes(existing)} bytes"
                )
        found = os.statvfs(existing)
    except OSError as error:
        raise refuse(f"{error.strerror} ({error.filename})") from error
    where = "it" if existing == resolved else str(existing)
    if found.f_flag & os.ST_RDONLY:
        raise refuse(f"{where} is on a read-only file system")
    if not found.f_blocks:  # /proc, /sys: root may write there, but not make anything
        raise refuse(f"{where} is on a file system in which users cannot create files")
    if not os.access(existing, os.W_OK | os.X_OK, effective_ids=True):
        raise refuse(f"user id {os.geteuid()} may not write to {where}")
    return existing


def _nearest_existing(path: Path) -> Path:
    """Return `path`, or the nearest thing above it that exists."""
    for candidate in (path, *path.parents):
        try:
            candidate.lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            continue
        return candidate
    return Path("/")


def name_max_bytes(directory: Path) -> int:
    """Return how long a name in `directory` may be [bytes]."""
    return os.pathconf(directory, "PC_NAME_MAX")
