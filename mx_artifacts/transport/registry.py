"""Transports by name. A new one is a line here and a run of tests/contract/test_transport.py."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable

from mx_artifacts import settings
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.transport.base import Transport


def _nixl(agent_name: str, nixl_backend: str) -> Transport:
    from mx_artifacts.transport.nixl_transport import NixlTransport

    return NixlTransport(agent_name, backend=nixl_backend)


def _inproc(agent_name: str, nixl_backend: str) -> Transport:
    from mx_artifacts.transport.inproc import InprocTransport

    return InprocTransport(agent_name)


def _stream(agent_name: str, nixl_backend: str) -> Transport:
    from mx_artifacts.transport.stream.transport import StreamTransport

    return StreamTransport(agent_name)


_FACTORIES: dict[str, Callable[[str, str], Transport]] = {
    "stream": _stream,
    "nixl": _nixl,
    "inproc": _inproc,
}


def known_transports() -> tuple[str, ...]:
    """Return the names that `create_transport` takes, the default first."""
    return tuple(_FACTORIES)


def create_transport(name: str, agent_name: str, *, nixl_backend: str = "UCX") -> Transport:
    """Create the agent `agent_name` of the transport `name`; the caller closes it.

    Raises:
        ConfigurationError: no transport has this name.
        TransportUnavailableError: it is not installed or does not start here.
    """
    factory = _FACTORIES.get(name)
    if factory is None:
        raise ConfigurationError(
            f"no transport is called {name!r}; known are {', '.join(_FACTORIES)}",
            hint="set MX_TRANSPORT to one of them, or leave it unset",
        )
    return factory(agent_name, nixl_backend)


def open_transport() -> Transport:
    """Create this process's agent as MX_TRANSPORT and MX_NIXL_BACKEND say; the caller closes it.

    Raises:
        ConfigurationError, TransportUnavailableError
    """
    # Pods may share host name and process id, so neither makes an agent's name unique.
    agent_name = f"mx-artifact-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    name = settings.TRANSPORT.read()
    transport = create_transport(name, agent_name, nixl_backend=settings.NIXL_BACKEND.read())
    if not transport.properties.crosses_processes:
        transport.close()
        raise ConfigurationError(
            f"MX_TRANSPORT is {name!r}, which no other process can read from",
            hint="unset MX_TRANSPORT; this one is for tests within a process",
        )
    return transport
