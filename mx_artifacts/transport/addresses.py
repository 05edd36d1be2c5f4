"""Kinds of memory, and checks of address ranges; all transports use this."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from mx_artifacts.errors import RegistrationError, TransportError
from mx_artifacts.transport.base import (
    MAX_ADDRESS,
    DeviceMemory,
    LocalMemory,
    MemoryKind,
    Region,
    RemoteRange,
    TransportProperties,
)


class PlacedRegion:
    """Where registered memory is, as `Region` has it; a transport adds how it is closed."""

    def __init__(
        self, addr: int, length: int, kind: MemoryKind = MemoryKind.DRAM, device_id: int = 0
    ) -> None:
        self._place = (addr, length, kind, device_id)

    @property
    def addr(self) -> int:
        return self._place[0]

    @property
    def length(self) -> int:
        return self._place[1]

    @property
    def kind(self) -> MemoryKind:
        return self._place[2]

    @property
    def device_id(self) -> int:
        return self._place[3]


def address_of(memory: memoryview) -> int:
    """Return the virtual address of `memory`'s first byte.

    The address holds for as long as the caller keeps the memory behind the view alive.

    Raises:
        ValueError: the memory is empty, read-only or not contiguous.
    """
    if memory.readonly or not memory.c_contiguous or memory.nbytes == 0:
        raise ValueError("memory must be writable, contiguous and not empty")
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def view_of_dram(memory: LocalMemory, properties: TransportProperties) -> memoryview:
    """Return `memory` as bytes, for a transport that takes DRAM only.

    Raises:
        ValueError: the memory is empty, read-only or not contiguous.
        RegistrationError: it is a device's.
    """
    if isinstance(memory, memoryview):
        address_of(memory)  # checks it
        return memory.cast("B")
    check_kind(memory, properties)
    raise AssertionError(f"the transport {properties.name} supports DRAM only")


def check_kind(memory: DeviceMemory, properties: TransportProperties) -> None:
    """Check that a transport can register a device's memory.

    Raises:
        RegistrationError: not memory of this kind.
        ValueError: it is no range of addresses.
    """
    if memory.kind not in properties.memory_kinds:
        raise RegistrationError(
            f"the {properties.name} transport cannot register {memory.kind.value}",
            hint="set MX_TRANSPORT=nixl on both ends, with NIXL built for this GPU",
        )
    if memory.addr < 0 or memory.length <= 0 or memory.addr + memory.length > MAX_ADDRESS:
        raise ValueError(f"{memory} is not a range of addresses")


def check_ranges(
    source: Sequence[RemoteRange],
    target: Sequence[tuple[Region, int]],
    properties: TransportProperties,
) -> None:
    """Check that each source range has a target that is large enough.

    Raises:
        ValueError: nothing to read, lengths differ, a range does not fit its region, or the ranges
            of one side differ in kind, which no transport reads at once.
        TransportError: a range ends beyond all memory, or is of a kind that the transport of these
            `properties` does not read.
    """
    if not source or len(source) != len(target):
        raise ValueError(f"{len(source)} source ranges do not pair with {len(target)} targets")
    if len({wanted.kind for wanted in source}) > 1 or len({r.kind for r, _ in target}) > 1:
        raise ValueError("one read cannot use both DRAM and VRAM; post one read for each")
    if source[0].kind not in properties.memory_kinds:
        raise TransportError(f"the {properties.name} transport cannot read {source[0].kind.value}")
    for wanted, (region, offset) in zip(source, target, strict=True):
        if wanted.addr < 0 or wanted.length <= 0:
            raise ValueError(f"{wanted} is not a valid range")
        if wanted.addr + wanted.length > MAX_ADDRESS:
            raise TransportError(f"{wanted} is outside all memory that agents have registered")
        if offset < 0 or offset + wanted.length > region.length:
            raise ValueError(
                f"{wanted.length} bytes at offset {offset} do not fit a region of "
                f"{region.length} bytes"
            )
