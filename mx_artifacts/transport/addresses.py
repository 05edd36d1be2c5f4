"""Where memory lies, and whether ranges of it fit: shared by all transports."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from mx_artifacts.errors import TransportError
from mx_artifacts.transport.base import MAX_ADDRESS, Region, RemoteRange


def address_of(memory: memoryview) -> int:
    """Return the virtual address of `memory`'s first byte.

    The address holds for as long as the caller keeps the memory behind the view alive.

    Raises:
        ValueError: the memory is empty, read-only or not contiguous.
    """
    if memory.readonly or not memory.c_contiguous or memory.nbytes == 0:
        raise ValueError("memory must be writable, contiguous and not empty")
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def check_ranges(source: Sequence[RemoteRange], target: Sequence[tuple[Region, int]]) -> None:
    """Check that each source range has a target that is large enough.

    Raises:
        ValueError: nothing to read, lengths differ, or a range does not fit its region.
        TransportError: a range ends beyond all memory.
    """
    if not source or len(source) != len(target):
        raise ValueError(f"{len(source)} source ranges do not pair with {len(target)} targets")
    for wanted, (region, offset) in zip(source, target, strict=True):
        if wanted.addr < 0 or wanted.length <= 0:
            raise ValueError(f"{wanted} is no range")
        if wanted.addr + wanted.length > MAX_ADDRESS:
            raise TransportError(f"{wanted} is outside of what any agent registered")
        if offset < 0 or offset + wanted.length > region.length:
            raise ValueError(
                f"{wanted.length} bytes at offset {offset} do not fit a region of "
                f"{region.length} bytes"
            )
