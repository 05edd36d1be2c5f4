"""The tar headers of many members; those that need more than one block are not done here."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from ctypes import byref, c_int, c_uint32
from dataclasses import dataclass
from typing import Any

from mx_artifacts.bulk.library import address_of, address_of_bytes, library, names_of

BLOCK_BYTES = 512


@dataclass(frozen=True)
class MemberColumns:
    """Members of a bundle, in their order, as columns of one length.

    `paths` without "/" at their ends; `sizes` [bytes, 0 to 2**63 - 1], 0 for directories; `modes`
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


def first_headers(members: MemberColumns) -> bytes:
    """Return the headers of the first members, up to one that is not plain: 512 bytes each."""
    compiled = library()
    if compiled is None:
        return b""
    columns = [array("q", column) for column in members.columns()[1:]]
    blocks = bytearray(BLOCK_BYTES * len(members.paths))
    error = c_int()
    done = compiled.bulk_headers(
        len(members.paths),
        names_of(members.paths),
        *map(address_of, columns),
        address_of_bytes(memoryview(blocks)),
        byref(error),
    )
    return bytes(memoryview(blocks)[: BLOCK_BYTES * done])


def join_first(members: MemberColumns, checksums: Sequence[int]) -> tuple[int, int]:
    """Go over the first members, up to one that is not plain.

    Return how many, and the CRC32C of the bytes that they are in a bundle, the contents having
    `checksums`.
    """
    compiled = library()
    if compiled is None:
        return 0, 0
    columns = [array("q", column) for column in (*members.columns()[1:], checksums)]
    joined, error = c_uint32(), c_int()
    done = compiled.bulk_join(
        len(members.paths),
        names_of(members.paths),
        *map(address_of, columns),
        byref(joined),
        byref(error),
    )
    return done, joined.value
