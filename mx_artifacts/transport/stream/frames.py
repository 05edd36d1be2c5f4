"""Messages of a stream connection, and the agent descriptor. Pure: bytes in, values out.

    source: greeting       "MXS1", nonce [16 bytes]
    target: hello          "MXS1", serial of the token [4 bytes], proof [16 bytes]
    target: request        count [2 bytes], then count * (address, length) [8 bytes each]
    source: answer         status [1 byte]; if it is OK, the ranges' bytes one after the other

Integers are big-endian. The proof is an HMAC-SHA256 of the nonce, cut off, whose key is the token:
the token itself is not sent. A target says nothing before it has a greeting, so that an invented
descriptor cannot make it talk to a service of another protocol. It sends the next request only
after it has the whole answer. After any status but OK the source closes the connection.
"""

from __future__ import annotations

import enum
import hmac
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from mx_artifacts.errors import TransportError, TransportNotAllowedError
from mx_artifacts.transport.base import RemoteRange
from mx_artifacts.transport.nixl_descriptor import NIXL_MAGIC

MAGIC = b"MXS1"
TOKEN_BYTES = 16
NONCE_BYTES = 16
PROOF_BYTES = 16
GREETING_BYTES = len(MAGIC) + NONCE_BYTES
MAX_RANGES = 1024
"""Maximum number of ranges in one request; a target with more sends several requests."""

_HELLO = struct.Struct(f">4sL{PROOF_BYTES}s")
_COUNT = struct.Struct(">H")
_RANGE = struct.Struct(">QQ")
_DESCRIPTOR = struct.Struct(f">4sHQL{TOKEN_BYTES}s")

HELLO_BYTES = _HELLO.size
MAX_REQUEST_BYTES = _COUNT.size + MAX_RANGES * _RANGE.size


class Status(enum.IntEnum):
    """First byte of an answer."""

    OK = 0
    NOT_REGISTERED = 1
    """A range is outside the regions that the token grants."""
    UNKNOWN_TOKEN = 2
    """The token is of another agent, such as one that ran on this port before."""


class FrameError(ValueError):
    """The peer sent bytes that no peer of ours sends."""


def encode_greeting(nonce: bytes) -> bytes:
    """Return the first bytes that a source sends."""
    return MAGIC + nonce


def decode_greeting(data: bytes) -> bytes:
    """Return the nonce in the GREETING_BYTES bytes `data`; FrameError if they are no greeting."""
    if data[: len(MAGIC)] != MAGIC:
        raise FrameError("the connection does not begin with a greeting")
    return data[len(MAGIC) :]


def proof_of(token: bytes, nonce: bytes) -> bytes:
    """Return the proof for `nonce`, which only a peer that knows `token` can compute."""
    return hmac.digest(token, nonce, "sha256")[:PROOF_BYTES]


def encode_hello(serial: int, token: bytes, nonce: bytes) -> bytes:
    """Return the first bytes that a target sends."""
    return _HELLO.pack(MAGIC, serial, proof_of(token, nonce))


def decode_hello(data: bytes) -> tuple[int, bytes]:
    """Return serial and proof in the HELLO_BYTES bytes `data`; FrameError if they are no hello."""
    magic, serial, proof = _HELLO.unpack(data)
    if magic != MAGIC:
        raise FrameError("the connection does not begin with a hello")
    return int(serial), bytes(proof)


def encode_request(ranges: Sequence[RemoteRange]) -> bytes:
    """Return a request for 1 to MAX_RANGES ranges."""
    packed = b"".join(_RANGE.pack(each.addr, each.length) for each in ranges)
    return _COUNT.pack(len(ranges)) + packed


def request_length(data: bytes | bytearray) -> int | None:
    """Return how long the request that begins `data` is [bytes]; None where that is not known yet.

    Raises:
        FrameError: it asks for no range, or for too many.
    """
    if len(data) < _COUNT.size:
        return None
    (count,) = _COUNT.unpack_from(data)
    if not 0 < count <= MAX_RANGES:
        raise FrameError(f"it requests {count} ranges, which is not possible")
    return _COUNT.size + int(count) * _RANGE.size


def decode_request(data: bytes | bytearray) -> list[tuple[int, int]]:
    """Return the (address, length) pairs of a whole request. They are claims, not checked."""
    return list(_RANGE.iter_unpack(data[_COUNT.size :]))


@dataclass(frozen=True)
class StreamDescriptor:
    """What a target needs to read from an agent. Where the agent's host is, the target knows.

    `agent_id` is chosen at random by each agent. Of two descriptors of one agent, the one with the
    higher `serial` was made later and grants more regions.
    """

    port: int
    agent_id: int
    serial: int
    token: bytes

    def encode(self) -> bytes:
        return _DESCRIPTOR.pack(MAGIC, self.port, self.agent_id, self.serial, self.token)

    @classmethod
    def decode(cls, data: bytes) -> StreamDescriptor:
        """Return what `encode` made.

        Raises:
            TransportNotAllowedError: it is the descriptor of another transport.
            TransportError: it is damaged.
        """
        if data.startswith(NIXL_MAGIC):
            raise TransportNotAllowedError(
                "it serves over NIXL only, which is not allowed on this node"
            )
        if not is_stream_descriptor(data) or len(data) != _DESCRIPTOR.size:
            raise TransportError(f"the agent descriptor ({len(data)} bytes) is damaged")
        _, port, agent_id, serial, token = _DESCRIPTOR.unpack(data)
        if not port:
            raise TransportError("the agent descriptor is damaged: port 0")
        return cls(port, agent_id, serial, token)


def is_stream_descriptor(data: bytes) -> bool:
    """Return whether `data` begins as the descriptor of an agent of this transport does."""
    return data[: len(MAGIC)] == MAGIC
