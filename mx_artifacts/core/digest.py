"""Digests: CRC32C for bytes on the wire, SHA-256 for what they are."""

from __future__ import annotations

import hashlib

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
