"""What a worker announces and listens on: names, addresses, and what nobody else can use."""

from __future__ import annotations

import socket

import pytest

from mx_artifacts.errors import BackendUnavailableError, ConfigurationError
from mx_artifacts.node import network
from mx_artifacts.node.network import is_loopback, worker_addresses

LOCAL = "127.0.0.1:8001"
REMOTE = "192.0.2.9:8001"
OUT = "198.51.100.4"
"""This node's address on the way to others, in these tests."""


@pytest.fixture(autouse=True)
def _routes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this machine have one way out, whatever it has; names resolve as they do here."""
    local_address = network._local_address

    def towards(host: str, port: int) -> str:
        if host in ("192.0.2.1", "192.0.2.9"):
            return OUT
        return local_address(host, port)

    monkeypatch.setattr(network, "_local_address", towards)


@pytest.mark.parametrize(
    ("host", "listen", "server", "announced", "listened"),
    [
        ("", "", LOCAL, "127.0.0.1", "127.0.0.1"),
        ("", "", "localhost:8001", "127.0.0.1", "127.0.0.1"),
        ("", "", REMOTE, OUT, OUT),
        ("127.0.0.1", "", LOCAL, "127.0.0.1", "127.0.0.1"),
        ("localhost", "", LOCAL, "localhost", "localhost"),
        # Not this machine's: a NAT, a Service.
        ("203.0.113.7", "", REMOTE, "203.0.113.7", OUT),
        ("203.0.113.7", "", LOCAL, "203.0.113.7", OUT),
        ("mx-source.invalid", "", REMOTE, "mx-source.invalid", OUT),
        # Stated, both or one.
        ("203.0.113.7", "0.0.0.0", REMOTE, "203.0.113.7", "0.0.0.0"),
        ("203.0.113.7", "127.0.0.1", REMOTE, "203.0.113.7", "127.0.0.1"),
        ("", "0.0.0.0", REMOTE, OUT, "0.0.0.0"),
        ("", "::", LOCAL, "127.0.0.1", "::"),
        ("", "203.0.113.7", REMOTE, "203.0.113.7", "203.0.113.7"),
    ],
)
def test_the_announced_host_and_the_listen_address(
    host: str, listen: str, server: str, announced: str, listened: str
) -> None:
    assert worker_addresses(host, listen, server) == (announced, listened)


@pytest.mark.parametrize(
    "host",
    [
        *("0.0.0.0", "::", "0", "0.0", "::0", "::ffff:0.0.0.0"),
        *("127.0.0.1", "127.0.1.1", "127.1", "::1", "::ffff:127.0.0.1"),
        *("localhost", "LOCALHOST.", "localhost.localdomain", "ip6-localhost", "a.localhost"),
        *("224.0.0.1", "ff02::1", "255.255.255.255", "fe80::1%eth0"),
    ],
)
def test_addresses_that_no_other_machine_can_use_are_refused_with_a_hint(host: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be announced") as caught:
        worker_addresses(host, "", REMOTE)
    assert "MX_WORKER_HOST" in caught.value.hint()
    assert "MX_WORKER_LISTEN" in caught.value.hint()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "0", "224.0.0.1"])
def test_nor_is_it_announced_on_one_machine(host: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be announced"):
        worker_addresses(host, "", LOCAL)


def test_listening_on_the_loopback_alone_announces_nothing_to_others() -> None:
    with pytest.raises(ConfigurationError, match=r"127\.0\.0\.1 cannot be announced"):
        worker_addresses("", "127.0.0.1", REMOTE)


@pytest.fixture
def _head_is_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the name `head` lead to the loopback, as Debian has a machine's own name."""
    getaddrinfo = socket.getaddrinfo

    def resolve(host: str, *args: object, **kwargs: object) -> object:
        return getaddrinfo("127.0.1.1" if host == "head" else host, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


@pytest.mark.usefixtures("_head_is_loopback")
def test_a_server_of_this_machines_own_name_is_not_on_the_loopback() -> None:
    assert worker_addresses("", "", "head:8001") == (OUT, OUT)
    with pytest.raises(ConfigurationError, match="cannot be announced"):
        worker_addresses("127.0.0.1", "", "head:8001")


@pytest.mark.usefixtures("_head_is_loopback")
def test_this_machines_own_name_is_announced_and_not_bound() -> None:
    assert worker_addresses("head", "", REMOTE) == ("head", OUT)


@pytest.mark.usefixtures("_head_is_loopback")
def test_the_hint_for_a_machine_without_a_route_says_what_to_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(network, "_way_out", lambda: "")
    with pytest.raises(ConfigurationError, match="no route") as caught:
        worker_addresses("", "", "head:8001")
    assert "MX_WORKER_HOST" in caught.value.hint()


def test_an_address_of_this_machine_is_listened_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "is_loopback", lambda host: False)  # as a second interface's
    assert worker_addresses("127.0.0.5", "", REMOTE) == ("127.0.0.5", "127.0.0.5")


def test_a_server_whose_name_does_not_resolve_may_do_so_later() -> None:
    with pytest.raises(BackendUnavailableError, match="no route") as caught:
        worker_addresses("", "", "nowhere.invalid:8001")
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *((host, True) for host in ("127.0.0.1", "[::1]", "localhost", "x.localhost", "127.9")),
        *(
            (host, False)
            for host in ("10.0.0.1", "localhost.example.org", "mylocalhost", "0.0.0.0")
        ),
    ],
)
def test_addresses_that_are_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
