"""Which address of this node others can use."""

from __future__ import annotations

import socket

from mx_artifacts.errors import BackendUnavailableError


def host_towards(address: str) -> str:
    """Return this node's address on the way to `address` (host:port); sends nothing.

    Targets reach the same central server, so they most likely reach this address too.

    Raises:
        BackendUnavailableError: the host does not resolve (now), or there is no route to it.
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
        raise BackendUnavailableError(
            f"no route to the central server {address}: {error.strerror or error}",
            hint="check MX_SERVER_ADDRESS, or --server, and this node's name resolution",
        ) from error
