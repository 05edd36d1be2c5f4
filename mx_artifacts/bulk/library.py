"""The compiled part, if this installation has it and this processor can run it (ADR 20).

This package works on whole lists of files where other code would work on one file after the other.
It does not know bundles or installs.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Sequence
from ctypes import CDLL, byref, c_char, c_int, c_int64, c_long, c_void_p
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

VERSION = 6
"""Of the functions' arguments; what was built from other sources than these is left alone."""
OUTSIDE = -1
"""In place of an errno: a stated part is not within its buffer."""

_INSTALL_AGAIN = "install again with a C compiler"


class Absence(NamedTuple):
    """Why the compiled functions are not used, and what to do about it, "" where nothing can be."""

    why: str
    next_step: str


@cache
def library() -> CDLL | None:
    """Return the compiled functions, or None where `absence` says why they are not there."""
    return None if absence() else _load()


@cache
def absence() -> Absence | None:
    """Say why the compiled functions are not used, or return None where they are."""
    place = _place()
    if not place.exists():
        return Absence("it was not built", _INSTALL_AGAIN)
    try:
        version = _load().bulk_version()
    except (OSError, AttributeError) as error:
        return Absence(f"it cannot be loaded ({error})", _INSTALL_AGAIN)
    if not version:
        return Absence("this processor has no instruction for CRC32C", "")
    if version != VERSION:
        return Absence(f"it is of version {version}, not {VERSION}", _INSTALL_AGAIN)
    return None


@cache
def _load() -> CDLL:
    loaded = CDLL(os.fspath(_place()))
    count, number, address = c_long, c_int64, c_void_p
    arguments: dict[str, list[Any]] = {
        "status": [c_int, count, *[address] * 2],
        "list": [c_int, count, *[address] * 2, number, address, number, address],
        "same": [c_int, count, *[address] * 3],
        "create": [c_int, count, *[address] * 2, number, *[address] * 4, c_int, *[address] * 3],
        "overwrite": [c_int, count, *[address] * 2, number, *[address] * 3],
        "read": [c_int, count, *[address] * 2, number, *[address] * 4],
        "compare": [count, address, number, *[address] * 3],
        "tree": [count, *[address] * 2],
        "headers": [count, *[address] * 6],
        "join": [count, *[address] * 7],
    }
    for name, types in arguments.items():
        function = loaded[f"bulk_{name}"]
        function.restype, function.argtypes = c_long, types
        setattr(loaded, f"bulk_{name}", function)
    return loaded


def _place() -> Path:
    return Path(__file__).with_name("libbulk.so.1")  # as setup.py names it


def names_of(paths: Sequence[str], encode: Callable[[str], bytes] = os.fsencode) -> bytes:
    """Return `paths` as the library takes them. Raises ValueError if one holds a NUL."""
    names = encode("\0".join(paths))
    if names.count(b"\0") != max(0, len(paths) - 1):
        raise ValueError("embedded null byte in a path")
    return names


def column_of(numbers: array[int], count: int) -> Any:
    """Return a column of `count` 64-bit numbers as the library takes it.

    Raises:
        ValueError: it is none.
    """
    if numbers.typecode != "q" or len(numbers) != count:
        raise ValueError(f"a column of {count} was wanted, this has {len(numbers)}")
    return bytes_of(numbers)


def bytes_of(data: memoryview | bytearray | array[int]) -> Any:
    """Return writable, contiguous bytes as the library takes them.

    While the returned object exists, the bytes stay where they are: the object that owns them
    cannot be closed or resized.
    """
    return byref(c_char.from_buffer(data)) if data else None


def error_of(error: int, path: str) -> Exception:
    """Return the exception for what the library could not do with `path`."""
    if error == OUTSIDE:
        return ValueError(f"the part for {path!r} does not lie in the buffer")
    return os_error(error, path)


def os_error(error: int, path: str) -> OSError:
    """Return the exception for a system call that failed; of the subclass that the errno has."""
    return OSError(error, os.strerror(error), path)


def part_of(data: memoryview, offset: int, length: int, path: str) -> memoryview:
    """Return a part of a buffer, for the Python beside the library. Raises what it would."""
    if not 0 <= offset <= offset + length <= len(data):
        raise error_of(OUTSIDE, path)
    return data[offset : offset + length]
