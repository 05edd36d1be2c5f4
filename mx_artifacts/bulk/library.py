"""The compiled part, if this installation has it and this processor can run it."""

from __future__ import annotations

import importlib.machinery
import os
from array import array
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctypes import CDLL

VERSION = 1
"""Of the functions' arguments; one that was built from other sources than these is left alone."""


@cache
def library() -> CDLL | None:
    """Return the compiled functions, or None where `absence` says why they are not there."""
    return None if absence() else _load()


@cache
def absence() -> str:
    """Say why the compiled functions are not used, and what to do; "" where they are."""
    place = _place()
    if not place.exists():
        return "it was not built; install with a C compiler at hand"
    try:
        version = _load().bulk_begin()
    except (OSError, AttributeError) as error:
        return f"{place.name} cannot be loaded ({error}); install again"
    if not version:
        return "this processor has no instruction for CRC32C"
    if version != VERSION:
        return f"{place.name} was built from another version ({version}); install again"
    return ""


@cache
def _load() -> CDLL:
    from ctypes import CDLL, c_int, c_int64, c_long, c_void_p

    loaded = CDLL(os.fspath(_place()))
    for function in (loaded.bulk_create, loaded.bulk_read, loaded.bulk_headers, loaded.bulk_join):
        function.restype = c_long
    loaded.bulk_status.restype = None
    column, count = c_void_p, c_long
    loaded.bulk_begin.restype = c_int
    loaded.bulk_status.argtypes = [c_int, count, *[column] * 2]
    making = [c_int, c_int64, c_int64]  # umask, uid, gid
    loaded.bulk_create.argtypes = [c_int, count, *[column] * 6, *making, *[column] * 2]
    loaded.bulk_read.argtypes = [c_int, count, *[column] * 6]
    loaded.bulk_headers.argtypes = [count, *[column] * 7]
    loaded.bulk_join.argtypes = [count, *[column] * 8]
    return loaded


def _place() -> Path:
    return Path(__file__).with_name(f"_bulk{importlib.machinery.EXTENSION_SUFFIXES[0]}")


def names_of(paths: Sequence[str]) -> bytes:
    """Return `paths` as the library takes them. Raises ValueError if one holds a NUL."""
    names = os.fsencode("\0".join(paths))
    if names.count(b"\0") != max(0, len(paths) - 1):
        raise ValueError("embedded null byte in a path")
    return names


def address_of(column: array[int]) -> int:
    """Return where a column lies; it must live, and keep its length, while that is used."""
    return column.buffer_info()[0]


def address_of_bytes(data: memoryview) -> int:
    """Return where writable, contiguous bytes lie, likewise."""
    from ctypes import addressof, c_char

    return addressof(c_char.from_buffer(data)) if data else 0


def os_error(error: int, path: str) -> OSError:
    """Return the exception for a system call that failed; of the subclass that the errno has."""
    return OSError(error, os.strerror(error), path)
