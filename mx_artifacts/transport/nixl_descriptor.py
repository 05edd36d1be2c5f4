"""Checks the form of NIXL's agent descriptors before native code reads one that a peer sent.

NIXL and UCX end the process on many malformed descriptors. This module checks the frame that NIXL
writes around its sections. The contents of the sections belong to UCX, so a peer can still forge
them: NIXL is for networks in which every peer is trusted (docs/adr/0024).
"""

from __future__ import annotations

import struct

from mx_artifacts.errors import TransportError

NIXL_MAGIC = b"nixlSerDes|"
MAX_DESCRIPTOR_BYTES = 1 << 20
"""Maximum size [bytes]: some 300 bytes for each network device, and 35 for each region."""
MAX_AGENT_NAME_BYTES = 256
MAX_CONNECTIONS = 64
"""Maximum number of backends in a descriptor; ours has one."""

_LENGTH = struct.Struct("<Q")


def check_nixl_descriptor(data: bytes) -> None:
    """Accept what NIXL may be shown.

    Raises:
        TransportError: it is too large, or not in NIXL's form.
    """
    try:
        if len(data) > MAX_DESCRIPTOR_BYTES:
            raise ValueError("it is too large")
        _Fields(data).check()
    except (ValueError, struct.error) as error:
        raise TransportError(
            f"the agent descriptor ({len(data)} bytes) is not one of NIXL: {error}",
            hint="both ends need the same NIXL backend (MX_NIXL_BACKEND) and UCX release",
        ) from None


class _Fields:
    """Walks over the fields: a tag, eight bytes of length, as many bytes, and a bar."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = len(NIXL_MAGIC)

    def check(self) -> None:
        if not self._data.startswith(NIXL_MAGIC):
            raise ValueError("it has a wrong beginning")
        name = self._take(b"Agent")
        if not 0 < len(name) <= MAX_AGENT_NAME_BYTES or b"\0" in name:
            raise ValueError("its agent has no usable name")
        for _ in range(self._count(b"Conns", MAX_CONNECTIONS)):
            if not self._take(b"t") or not self._take(b"c"):
                raise ValueError("a connection is empty")
        if self._take(b"") != b"MemSection":
            raise ValueError("its memory section is missing")
        for _ in range(self._count(b"nixlSecElms", MAX_CONNECTIONS)):
            self._take(b"bknd")
            self._check_list()
        if self._at != len(self._data):
            raise ValueError("it has more bytes than it announces")

    def _check_list(self) -> None:
        if self._take(b"nixlDList") != b"nixlSDList" or len(self._take(b"t")) != 4:
            raise ValueError("a list of regions is of another kind")
        for _ in range(self._count(b"n", MAX_DESCRIPTOR_BYTES // 32)):
            region = self._take(b"")
            if len(region) < 24:
                raise ValueError("a region is incomplete")
            address, length = struct.unpack_from("<QQ", region)
            if not length or address + length > 1 << 64:
                raise ValueError("a region is at an impossible address")

    def _count(self, tag: bytes, most: int) -> int:
        (count,) = _LENGTH.unpack(self._take(tag))
        if count > most:
            raise ValueError(f"it announces {count} of {tag.decode()}")
        return int(count)

    def _take(self, tag: bytes) -> bytes:
        start = self._at + len(tag) + _LENGTH.size
        if self._data[self._at : self._at + len(tag)] != tag:
            raise ValueError(f"{tag.decode() or 'a field'} is missing at byte {self._at}")
        (length,) = _LENGTH.unpack_from(self._data, self._at + len(tag))
        end = start + length
        if end >= len(self._data) or self._data[end : end + 1] != b"|":
            raise ValueError(f"a field has a wrong end at byte {self._at}")
        self._at = end + 1
        return self._data[start:end]
