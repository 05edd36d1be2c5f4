"""Binds a port; the error says why a port cannot be used."""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import dataclass
from typing import Protocol

from mx_artifacts.errors import ConfigurationError


class Bindable(Protocol):
    """A gRPC server of either kind, made with grpc.so_reuseport 0."""

    def add_insecure_port(self, address: str) -> int: ...


def join_address(host: str, port: int) -> str:
    """Return host:port, an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True)
class ListenSettings:
    """What messages call the settings of the host and of the port that something listens on."""

    host: str = "--host"
    port: str = "--port"


def bind(
    server: Bindable, host: str, port: int, settings: ListenSettings = ListenSettings()
) -> int:
    """Bind `server` and return the port; 0: any free port.

    Raises:
        ConfigurationError: it names the address, the cause and the next step; `is_in_use` says
            whether the port is in use.
    """
    _check_available(host, port, settings)
    address = join_address(host, port)
    try:
        bound = server.add_insecure_port(address)
    except RuntimeError as error:  # taken between the check and here
        raise _cannot_listen(address, str(error), settings) from error
    return bound


def is_in_use(error: ConfigurationError) -> bool:
    """Return whether an error of `bind` says that the port is taken."""
    cause = error.__cause__
    # gRPC's own error, a RuntimeError, means that the port was taken after it had been free.
    return not isinstance(cause, OSError) or cause.errno == errno.EADDRINUSE


def _check_available(host: str, port: int, settings: ListenSettings) -> None:
    """Try each address of `host` separately: gRPC accepts if it can bind one of several, and its
    error does not say why."""
    address = join_address(host, port)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        why = f"{host!r} cannot be resolved: {error}"
        raise _cannot_listen(address, why, settings) from error
    failures = [failure for family, _, _, _, name in found if (failure := _try(family, name))]
    decisive = [f for f in failures if f.errno in (errno.EADDRINUSE, errno.EACCES)]
    if decisive or len(failures) == len(found):
        worst = (decisive or failures)[0]
        why = os.strerror(worst.errno or 0)
        raise _cannot_listen(address, why, settings, worst.errno) from worst


def _try(family: socket.AddressFamily, name: object) -> OSError | None:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # As gRPC does: a port whose connections linger after a restart is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind(name)  # type: ignore[arg-type]
    except OSError as error:
        return error
    return None


_HINTS = {
    errno.EADDRINUSE: "stop what listens there (`ss -ltnp`), or choose another {port}",
    errno.EACCES: "choose a {port} of 1024 or above",
    errno.EADDRNOTAVAIL: "choose a {host} that is an address of this machine",
}


def _cannot_listen(
    address: str, why: str, settings: ListenSettings, code: int | None = None
) -> ConfigurationError:
    hint = _HINTS.get(code or 0, "choose another {host} or {port}")
    return ConfigurationError(
        f"cannot listen on {address}: {why}",
        hint=hint.format(host=settings.host, port=settings.port),
    )
