from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mx_artifacts.core.digest import crc32c, crc32c_join


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_joined_checksum_is_that_of_the_joined_bytes(first: bytes, second: bytes) -> None:
    assert crc32c_join(crc32c(first), crc32c(second), len(second)) == crc32c(first + second)


def test_join_over_a_whole_chunk() -> None:
    first, second = b"a" * 1000, bytes(range(256)) * 4099
    assert crc32c_join(crc32c(first), crc32c(second), len(second)) == crc32c(first + second)
