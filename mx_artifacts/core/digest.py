"""Digests: CRC32C for bytes on the wire, SHA-256 for what they are."""

from __future__ import annotations

import hashlib
from functools import cache

import crc32c as _crc32c

# Anything with the buffer protocol; typing has no name for it before Python 3.12.
Bytes = bytes | bytearray | memoryview


def crc32c(data: Bytes, value: int = 0) -> int:
    """Return the CRC32C (Castagnoli) of `data`, continuing from `value`. Releases the GIL."""
    return int(_crc32c.crc32c(data, value))


def crc32c_hex(value: int) -> str:
    """Format a CRC32C as the wire has it: 8 lower-case hex characters."""
    return f"{value:08x}"


def sha256_hex(data: Bytes) -> str:
    """Return the SHA-256 of `data` as 64 lower-case hex characters."""
    return hashlib.sha256(data).hexdigest()


# --- joining checksums ---------------------------------------------------------------------------
# CRC32C is linear over GF(2): appending zero bytes to a message multiplies its checksum by a
# 32 x 32 bit matrix, kept here as 32 columns. So the checksum of a whole follows from its parts'.

_POLYNOMIAL_REFLECTED = 0x82F63B78
"""Castagnoli, RFC 3720 appendix B.4, bits in reflected order."""


def _times(matrix: tuple[int, ...], vector: int) -> int:
    product = 0
    while vector:
        lowest = vector & -vector
        product ^= matrix[lowest.bit_length() - 1]
        vector ^= lowest
    return product


@cache
def _append_zero_bits(exponent: int) -> tuple[int, ...]:
    """Return the matrix that appends 2**`exponent` zero bits."""
    if exponent == 0:
        return (_POLYNOMIAL_REFLECTED, *(1 << bit for bit in range(31)))
    half = _append_zero_bits(exponent - 1)
    return tuple(_times(half, column) for column in half)


def crc32c_join(first: int, second: int, second_length_bytes: int) -> int:
    """Return the CRC32C of two byte strings one after the other, from the CRC32C of each."""
    exponent = 3  # one byte is 2**3 bits
    while second_length_bytes:
        if second_length_bytes & 1:
            first = _times(_append_zero_bits(exponent), first)
        second_length_bytes >>= 1
        exponent += 1
    return first ^ second
