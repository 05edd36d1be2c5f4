from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mx_artifacts.core.digest import crc32c, crc32c_join


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_joined_checksum_is_that_of_the_joined_bytes(first: bytes, second: bytes) -> None:
    assert crc32c_join(crc32c(first), crc32c(second), len(second)) == crc32c(first + second)


@given(st.binary(max_size=40), st.integers(0, 1 << 20), st.integers(0, 1 << 20))
def test_joins_are_associative(first: bytes, length: int, more: int) -> None:
    known = crc32c(first)
    in_two_steps = crc32c_join(crc32c_join(known, 0x12345678, length), 0x9ABCDEF0, more)
    at_once = crc32c_join(known, crc32c_join(0x12345678, 0x9ABCDEF0, more), length + more)
    assert in_two_steps == at_once


def test_join_over_a_whole_chunk() -> None:
    first, second = b"a" * 1000, bytes(range(256)) * 4099
    assert crc32c_join(crc32c(first), crc32c(second), len(second)) == crc32c(first + second)
