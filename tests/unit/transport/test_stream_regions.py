"""Which ranges a token grants."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mx_artifacts.errors import RegistrationError
from mx_artifacts.transport.addresses import address_of
from mx_artifacts.transport.stream.frames import proof_of
from mx_artifacts.transport.stream.regions import RegionTable

NONCE = b"n" * 16


@pytest.fixture
def table() -> Iterator[RegionTable]:
    table = RegionTable()
    yield table
    table.clear()


def memory(content: bytes) -> memoryview:
    return memoryview(bytearray(content))


def test_the_address_of_a_region_is_not_an_address_of_the_process(table: RegionTable) -> None:
    data = memory(b"0123456789")
    region = table.add(data, None)
    assert region.addr != address_of(data)
    assert region.addr != table.add(memory(b"x"), None).addr
    token, serial = table.token()
    assert table.is_granted(serial, proof_of(token, NONCE), NONCE)
    (view,) = table.find([(region.addr + 3, 4)], serial) or ()
    assert bytes(view) == b"3456"


def test_a_token_grants_nothing_that_was_registered_after_it(table: RegionTable) -> None:
    first = table.add(memory(b"first"), None)
    early = table.token()
    assert table.token() == early
    second = table.add(memory(b"second"), None)
    late = table.token()
    assert late != early
    assert table.find([(first.addr, 5)], early[1]) is not None
    assert table.find([(second.addr, 6)], early[1]) is None
    assert table.find([(first.addr, 5), (second.addr, 6)], late[1]) is not None


def test_a_proof_must_be_of_a_token_that_was_given(table: RegionTable) -> None:
    table.add(memory(b"x"), None)
    token, serial = table.token()
    for wrong in (
        (serial, proof_of(token, b"m" * 16)),
        (serial, proof_of(b"?" * 16, NONCE)),
        (serial + 1, proof_of(token, NONCE)),
        (0, proof_of(bytes(16), NONCE)),
    ):
        assert not table.is_granted(*wrong, NONCE)


@pytest.mark.parametrize(
    ("shift", "length"),
    [(-1, 2), (0, 11), (10, 1), (5, 6), (0, 0), (1 << 62, 1), (0, (1 << 64) - 1)],
)
def test_ranges_outside_of_a_region_are_not_found(
    table: RegionTable, shift: int, length: int
) -> None:
    region = table.add(memory(b"0123456789"), 1 << 40)
    _, serial = table.token()
    assert table.find([(region.addr, 10)], serial) is not None
    assert table.find([(region.addr, 1), (region.addr + shift, length)], serial) is None


def test_a_closed_region_is_not_found_and_its_views_live_on(table: RegionTable) -> None:
    region = table.add(memory(b"0123456789"), None)
    _, serial = table.token()
    (view,) = table.find([(region.addr, 10)], serial) or ()
    region.close()
    region.close()
    assert region not in table
    assert table.find([(region.addr, 10)], serial) is None
    assert bytes(view) == b"0123456789"


def test_two_regions_share_no_address(table: RegionTable) -> None:
    table.add(memory(bytes(10)), 1000)
    for at in (995, 1000, 1009):
        with pytest.raises(RegistrationError):
            table.add(memory(bytes(10)), at)
    table.add(memory(bytes(10)), 1010)
    table.add(memory(bytes(10)), 990)
