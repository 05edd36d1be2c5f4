"""Opens the sockets of the stream transport; no other module does, so TLS needs only this one."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack, suppress

from mx_artifacts.errors import ConfigurationError, PeerLostError

BACKLOG = 1024
"""Maximum number of connections that the kernel keeps for a source that has not accepted them."""
UNSENT_BYTES = 256 * 1024
"""Maximum number of bytes that the kernel holds for a reader that does not take them. Without it
each such reader costs the source 4 MiB of kernel memory, and the time to copy them there."""
CONNECT_SECONDS = 10.0
"""Maximum time that a source may take to accept a connection and to greet."""
RECONNECT_SECONDS = 0.05
"""Pause before a connection is tried again that a source closed, since it has many."""

_PENDING = (0, errno.EINPROGRESS, errno.EWOULDBLOCK)


def listen(host: str, port: int) -> list[socket.socket]:
    """Listen on all addresses of `host`, with the same port; 0 takes a free one.

    Raises:
        ConfigurationError: no address can be bound; its cause is an OSError.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise _cannot_listen(host, port, error) from error
    listeners: list[socket.socket] = []
    failure: OSError | None = None
    for family, _, _, _, address in found:
        chosen = listeners[0].getsockname()[1] if listeners else port
        try:
            listeners.append(_bind(family, (address[0], chosen, *address[2:])))
        except OSError as refused:
            failure = failure or refused
    if not listeners or (failure and failure.errno in (errno.EADDRINUSE, errno.EACCES)):
        for listener in listeners:
            listener.close()
        cause = failure or OSError(errno.EADDRNOTAVAIL, "no address")
        raise _cannot_listen(host, port, cause) from cause
    return listeners


def _bind(family: int, address: tuple[object, ...]) -> socket.socket:
    with ExitStack() as on_failure:
        listener = on_failure.enter_context(socket.socket(family, socket.SOCK_STREAM))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
        on_failure.pop_all()
    return listener


def _cannot_listen(host: str, port: int, error: OSError) -> ConfigurationError:
    why = error.strerror or str(error)
    return ConfigurationError(
        f"the stream transport cannot listen on {host or 'all addresses'}, port {port}: {why}",
        hint="choose another port with MX_WORKER_STREAM_PORT, or stop what listens there "
        "(`ss -ltnp`)",
    )


def is_in_use(error: ConfigurationError) -> bool:
    """Return whether an error of `listen` says that the port is taken."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE


def accept(listener: socket.socket) -> tuple[socket.socket, str] | None:
    """Return the next connection and the peer's address; None where there is none now.

    Raises:
        OSError: this process has no descriptor or memory left for it.
    """
    try:
        accepted, address = listener.accept()
    except (BlockingIOError, ConnectionError, InterruptedError):
        return None
    accepted.setblocking(False)
    _tune(accepted)
    with suppress(OSError):
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
    return accepted, str(address[0])


def resolve(host: str, port: int) -> list[tuple[int, tuple[object, ...]]]:
    """Return (family, address) of every address of `host`, the preferred first.

    Raises:
        PeerLostError: the name cannot be resolved.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise PeerLostError(f"host {host!r} of a source cannot be resolved: {error}") from error
    return [(family, address) for family, _, _, _, address in found]


def begin_connect(family: int, address: tuple[object, ...]) -> socket.socket:
    """Return a non-blocking socket that is connecting; it is writable when that is decided.

    Raises:
        OSError: refused at once, or no descriptor is left.
    """
    with ExitStack() as on_failure:
        connecting = on_failure.enter_context(socket.socket(family, socket.SOCK_STREAM))
        connecting.setblocking(False)
        _tune(connecting)
        code = connecting.connect_ex(address)
        if code not in _PENDING:
            raise OSError(code, f"cannot connect: {errno.errorcode.get(code, code)}")
        on_failure.pop_all()
    return connecting


def connect_error(connecting: socket.socket) -> OSError | None:
    """Return what a writable socket of `begin_connect` failed by; None: it is connected."""
    code = connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    return OSError(code, errno.errorcode.get(code, str(code))) if code else None


def _tune(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
