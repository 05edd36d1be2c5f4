"""Digests: CRC32C to check bytes on the wire, SHA-256 to identify them."""

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
# CRC32C is linear over GF(2), so the checksum of a whole follows from its parts': appending zero
# bytes to a message multiplies its checksum by a 32 x 32 bit matrix. A few zeros are quicker
# appended than multiplied with; for powers of two above that the matrices are kept, as tables.

_POLYNOMIAL_REFLECTED = 0x82F63B78
"""Castagnoli, RFC 3720 appendix B.4, bits in reflected order."""
_ALL_ONES = 0xFFFFFFFF
"""What the checksum's register starts with, and what is added to it at the end."""
_FEW_ZEROS_EXPONENT = 14
_FEW_ZEROS = memoryview(bytes(1 << _FEW_ZEROS_EXPONENT))
"""Going over them all takes about as long as three look-ups in the tables (1 us)."""

_Tables = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def _times(matrix: tuple[int, ...], vector: int) -> int:
    product = 0
    while vector:
        lowest = vector & -vector
        product ^= matrix[lowest.bit_length() - 1]
        vector ^= lowest
    return product


@cache
def _append_zero_bits(exponent: int) -> tuple[int, ...]:
    """Return the matrix that appends 2**`exponent` zero bits, as 32 columns."""
    if exponent == 0:
        return (_POLYNOMIAL_REFLECTED, *(1 << bit for bit in range(31)))
    half = _append_zero_bits(exponent - 1)
    return tuple(_times(half, column) for column in half)


@cache
def _append_zero_bytes(exponent: int) -> _Tables:
    """Return what each byte of a checksum, the lowest first, adds to that of the message with
    2**`exponent` zero bytes more."""
    matrix = _append_zero_bits(exponent + 3)

    def table(columns: tuple[int, ...]) -> tuple[int, ...]:
        sums = [0]
        for column in columns:
            sums += [each ^ column for each in sums]
        return tuple(sums)

    return table(matrix[:8]), table(matrix[8:16]), table(matrix[16:24]), table(matrix[24:])


def crc32c_join(first: int, second: int, second_length_bytes: int) -> int:
    """Return the CRC32C of two byte strings one after the other, from the CRC32C of each."""
    few = second_length_bytes & (len(_FEW_ZEROS) - 1)
    if few:
        first = crc32c(_FEW_ZEROS[:few], first ^ _ALL_ONES) ^ _ALL_ONES
    rest = second_length_bytes >> _FEW_ZEROS_EXPONENT
    exponent = _FEW_ZEROS_EXPONENT
    while rest:
        if rest & 1:
            lowest, low, high, highest = _append_zero_bytes(exponent)
            first = (
                lowest[first & 0xFF]
                ^ low[first >> 8 & 0xFF]
                ^ high[first >> 16 & 0xFF]
                ^ highest[first >> 24]
            )
        rest >>= 1
        exponent += 1
    return first ^ second
