"""Which address of this node others can use."""

from __future__ import annotations

import socket

from mx_artifacts.errors import ConfigurationError


def host_towards(address: str) -> str:
    """Return this node's address on the way to `address` (host:port); sends nothing.

    Targets reach the same central server, so they most likely reach this address too.

    Raises:
        ConfigurationError: the host does not resolve, or there is no route to it.
    """
    host, _, port = address.rpartition(":")
    try:
        family, kind, protocol, _, remote = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(remote)  # of a datagram socket: picks the route, no packet
            return str(probe.getsockname()[0])
    except OSError as error:
        raise ConfigurationError(
            f"no route to the central server {address}: {error.strerror or error}",
            hint="check --server, or state this node's own address with --host",
        ) from error
