"""Makes the tar headers of many members, except those that need more than one block."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from ctypes import byref, c_uint32
from dataclasses import dataclass
from typing import Any

from mx_artifacts.bulk.library import bytes_of, column_of, library, names_of

TAR_BLOCK_BYTES = 512


@dataclass(frozen=True)
class MemberColumns:
    """Members of a bundle, in their order, as columns of one length.

    `paths` without "/" at their ends and without NULs; `sizes` [bytes], 0 for directories; `modes`
    as `safe_mode` gives them; `mtimes_ns`.
    """

    paths: Sequence[str]
    are_dirs: Sequence[bool]
    sizes: Sequence[int]
    modes: Sequence[int]
    mtimes_ns: Sequence[int]

    def columns(self) -> tuple[Sequence[Any], ...]:
        """Return all columns."""
        return self.paths, self.are_dirs, self.sizes, self.modes, self.mtimes_ns

    def part(self, start: int, end: int) -> MemberColumns:
        """Return the members from `start` up to `end`."""
        return MemberColumns(*(column[start:end] for column in self.columns()))


def first_headers(members: MemberColumns) -> bytes:
    """Return the headers of the first members, up to one that is not plain: 512 bytes each."""
    compiled = library()
    arguments = _arguments(members) if compiled is not None else None
    if compiled is None or arguments is None:
        return b""
    blocks = bytearray(TAR_BLOCK_BYTES * len(members.paths))
    done = compiled.bulk_headers(*arguments, bytes_of(blocks))
    return bytes(memoryview(blocks)[: TAR_BLOCK_BYTES * done])


def join_first(members: MemberColumns, checksums: Sequence[int]) -> tuple[int, int]:
    """Go over the first members, up to one that is not plain.

    Return how many, and the CRC32C of the bytes that they are in a bundle, the contents having
    `checksums`.
    """
    compiled = library()
    arguments = _arguments(members, checksums) if compiled is not None else None
    if compiled is None or arguments is None:
        return 0, 0
    joined = c_uint32()
    done = compiled.bulk_join(*arguments, byref(joined))
    return done, joined.value


def _arguments(members: MemberColumns, *more: Sequence[int]) -> tuple[Any, ...] | None:
    """Return names and columns in the form of the library, or None if a number is too large.

    A time after the year 2262 is too large. Then the Python code handles all members.
    """
    count = len(members.paths)
    try:
        columns = [array("q", column) for column in (*members.columns()[1:], *more)]
    except OverflowError:
        return None
    names = names_of(members.paths, _encode)
    return count, names, *(column_of(column, count) for column in columns)


def _encode(names: str) -> bytes:
    """Return names for which it matters only whether they are ASCII."""
    return names.encode("utf-8", "surrogatepass")
