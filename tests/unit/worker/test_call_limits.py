"""Whose call a call is, as gRPC names peers."""

from __future__ import annotations

import pytest

from mx_artifacts.node.network import is_own_address
from mx_artifacts.worker.call_limits import address_of_peer


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:10.0.0.1:80", "10.0.0.1"),
        ("ipv6:%5Bfd00::1%5D:80", "fd00::1"),
        ("ipv6:[::1]:80", "::1"),
        ("unix:/run/x", "unix:/run/x"),
        ("", ""),
    ],
)
def test_addresses_of_peers(peer: str, address: str) -> None:
    assert address_of_peer(peer) == address


def test_own_addresses() -> None:
    assert is_own_address("127.0.0.1")
    assert not is_own_address("192.0.2.1")
    assert not is_own_address("2001:db8::1")
    assert not is_own_address("unix:/run/x")
    assert not is_own_address("")
