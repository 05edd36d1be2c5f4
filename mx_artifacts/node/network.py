"""Finds the address of this node that others can use, and the address on which a worker listens."""

from __future__ import annotations

import ipaddress
import logging
import socket
from contextlib import suppress
from typing import NamedTuple

from mx_artifacts.errors import BackendUnavailableError, ConfigurationError

logger = logging.getLogger(__name__)

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_ELSEWHERE = ("192.0.2.1", "2001:db8::1")
"""Addresses of no machine (RFC 5737, RFC 3849): what routes to them is the way out of this one."""
_LOOPBACK_NAMES = (
    *("localhost", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback"),
    *("localhost.localdomain", "localhost4.localdomain4", "localhost6.localdomain6"),
)
"""Those that distributions have in /etc/hosts; and RFC 6761 reserves all below .localhost."""


class WorkerAddresses(NamedTuple):
    """Where targets connect to, and what a worker listens on; neither has a port."""

    announced: str
    listen: str


def worker_addresses(host: str, listen: str, server: str) -> WorkerAddresses:
    """Return the host to announce and the address to listen on, from the stated ones ("": none).

    `server` is the central server (host:port). Nothing is sent.

    Raises:
        ConfigurationError: no other machine could use the address to announce.
        BackendUnavailableError: as `host_towards`.
    """
    if host:
        announced = host
    elif listen and not is_unspecified(listen):
        announced = listen
    else:
        announced = host_towards(server)
    _check_announced(announced, server)
    if listen:
        return WorkerAddresses(announced, listen)
    if announced != host or is_loopback(host) or _is_reachable_here(host):
        return WorkerAddresses(announced, announced)
    here = host_towards(server)
    return WorkerAddresses(announced, (_way_out() or here) if is_loopback(here) else here)


def host_towards(address: str) -> str:
    """Return this node's address on the way to `address` (host:port); sends nothing.

    Targets reach the same central server, so they most likely reach this address too. Where its
    name is this machine's own, and leads to the loopback here alone, it is the address on the way
    out.

    Raises:
        BackendUnavailableError: the host does not resolve (now), or there is no route to it.
        ConfigurationError: the name is this machine's own, and no route leads out.
    """
    host, _, port = address.rpartition(":")
    try:
        here = _local_address(host.strip("[]"), int(port))
    except OSError as error:
        raise BackendUnavailableError(
            f"no route to the central server {address}: {error.strerror or error}",
            hint="check MX_SERVER_ADDRESS (or --server), and the name resolution of this node",
        ) from error
    if not is_loopback(here) or is_loopback(host):
        return here
    if way_out := _way_out():
        return way_out
    raise ConfigurationError(
        f"the central server {address} is this machine ({here}), and this machine has no route to "
        "other machines, so there is no address that they could use",
        hint="state the address of this machine with --host (MX_WORKER_HOST), or that of the "
        "server with --server",
    )


def is_loopback(host: str) -> bool:
    """Return whether `host` is this machine's own for every machine: a literal, or localhost.

    A name that this machine's hosts file leads to the loopback is not: others resolve it otherwise.
    """
    name = host.strip("[]").lower().rstrip(".")
    if name in _LOOPBACK_NAMES or name.endswith(".localhost"):
        return True
    return _address_of(name).is_loopback


def is_own_address(address: str) -> bool:
    """Return whether an IP address is one of this machine's."""
    try:
        family = {4: socket.AF_INET, 6: socket.AF_INET6}[ipaddress.ip_address(address).version]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except (OSError, ValueError):
        return False
    return True


def is_unspecified(host: str) -> bool:
    """Return whether `host` means every address of a machine: 0.0.0.0 or ::."""
    return _address_of(host).is_unspecified


def _check_announced(host: str, server: str) -> None:
    """Raise ConfigurationError for what no other node could connect to."""
    address = _address_of(host)
    why = ""
    if address.is_unspecified:
        why = "means every address of the machine that reads it, so each target would ask itself"
    elif address.is_multicast or str(address) == "255.255.255.255":
        why = "is a group's address"
    elif "%" in host:
        why = "names an interface of this machine"
    elif is_loopback(host) and not is_loopback(server.rpartition(":")[0]):
        why = (
            f"is the loopback, so each target would ask itself; the central server {server} is "
            "not on the loopback, so targets may be elsewhere"
        )
    if why:
        raise ConfigurationError(
            f"{host} cannot be announced to targets: it {why}",
            hint="set --host (MX_WORKER_HOST) to a name or address to which targets can connect, "
            "or leave it out; to choose the address to listen on, use --listen (MX_WORKER_LISTEN)",
        )


def _address_of(host: str) -> IPAddress:
    """Return the address that a literal is, also as the C library spells it ("0", "127.1").

    A name gives an address that is none of the special ones.
    """
    with suppress(ValueError):
        address = ipaddress.ip_address(host)
        return getattr(address, "ipv4_mapped", None) or address
    with suppress(OSError, UnicodeEncodeError):
        return ipaddress.IPv4Address(socket.inet_aton(host))
    return ipaddress.IPv4Address(_ELSEWHERE[0])


def _is_reachable_here(host: str) -> bool:
    """Return whether `host` leads to an address of this machine that is not its loopback."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)
    except OSError as error:
        # Such as a name that exists where the targets are only.
        logger.warning("%s, which is announced to targets, does not resolve here: %s", host, error)
        return False
    for family, kind, protocol, _, name in found:
        with suppress(OSError), socket.socket(family, kind, protocol) as probe:
            probe.bind(name)
            if not is_loopback(str(name[0])):
                return True
    return False


def _way_out() -> str:
    """Return this machine's address on the way to others, "" where no route leads out of it."""
    for elsewhere in _ELSEWHERE:
        with suppress(OSError):
            return _local_address(elsewhere, 9)
    return ""


def _local_address(host: str, port: int) -> str:
    """Return the address from which this machine sends to `host`; raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    family, kind, protocol, _, remote = found[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(remote)  # of a datagram socket: picks the route, no packet
        return str(probe.getsockname()[0])
