"""Only what is in NIXL's form is shown to NIXL."""

from __future__ import annotations

import random
import struct

import pytest

from mx_artifacts.errors import TransportError
from mx_artifacts.transport.nixl_descriptor import (
    MAX_DESCRIPTOR_BYTES,
    NIXL_MAGIC,
    check_nixl_descriptor,
)


def field(tag: bytes, data: bytes) -> bytes:
    return tag + struct.pack("<Q", len(data)) + data + b"|"


def number(tag: bytes, value: int) -> bytes:
    return field(tag, struct.pack("<Q", value))


def region(address: int = 4096, length: int = 100) -> bytes:
    return field(b"", struct.pack("<QQQ", address, length, 0) + b"metadata")


def descriptor(
    *,
    agent: bytes = b"agent-1",
    connections: int = 1,
    regions: tuple[bytes, ...] = (region(),),
    tail: bytes = b"",
) -> bytes:
    """Return what NIXL 1.5 writes for an agent with one backend."""
    return (
        NIXL_MAGIC
        + field(b"Agent", agent)
        + number(b"Conns", connections)
        + field(b"t", b"UCX")
        + field(b"c", b"worker address")
        + field(b"", b"MemSection")
        + number(b"nixlSecElms", 1)
        + field(b"bknd", b"UCX")
        + field(b"nixlDList", b"nixlSDList")
        + field(b"t", bytes(4))
        + number(b"n", len(regions))
        + b"".join(regions)
        + tail
    )


def test_descriptors_of_nixl_are_accepted() -> None:
    check_nixl_descriptor(descriptor())
    check_nixl_descriptor(descriptor(regions=(region(1), region(2, 3))))


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"nixlSerDes",
        descriptor()[:-1],
        descriptor(tail=b"x"),
        descriptor(agent=b""),
        descriptor(agent=b"a" * 257),
        descriptor(agent=b"a\0b"),
        descriptor(connections=2),
        descriptor(connections=2**63),
        descriptor(regions=(region(2**64 - 8, 16),)),
        descriptor(regions=(region(length=0),)),
        descriptor(regions=(field(b"", b"short"),)),
        descriptor() + bytes(MAX_DESCRIPTOR_BYTES),
        NIXL_MAGIC + b"Agent" + struct.pack("<Q", 2**64 - 1) + b"x|",
    ],
)
def test_descriptors_that_nixl_never_writes_are_refused(wrong: bytes) -> None:
    with pytest.raises(TransportError, match="descriptor"):
        check_nixl_descriptor(wrong)


def test_changed_bytes_are_refused_or_of_a_content_that_only_ucx_knows() -> None:
    chance = random.Random(7)
    good = descriptor()
    for _ in range(5000):
        changed = bytearray(good)
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        try:
            check_nixl_descriptor(bytes(changed))
        except TransportError:
            continue
        assert len(changed) == len(good)
