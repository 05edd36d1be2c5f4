"""Transports by name. A new one needs a line here and must pass tests/contract/test_transport.py.

Another package adds one by an entry point of the group `mx_artifacts.transports`. The name of the
entry point is the value of MX_TRANSPORT; its object takes the agent's name and returns the
transport.
"""

from __future__ import annotations

import logging
import os
import socket
import uuid
from collections.abc import Callable

from mx_artifacts import settings
from mx_artifacts.errors import ConfigurationError, TransportUnavailableError
from mx_artifacts.runtime.entry_points import load_entry_point
from mx_artifacts.transport.base import Transport

ENTRY_POINTS = "mx_artifacts.transports"

logger = logging.getLogger(__name__)


def _nixl(agent_name: str) -> Transport:
    from mx_artifacts.node.rdma import pinned_devices
    from mx_artifacts.transport.nixl_transport import NixlTransport

    return NixlTransport(
        agent_name,
        backend=settings.NIXL_BACKEND.read(),
        devices=pinned_devices(
            settings.RDMA_NIC_PIN.read(), settings.RDMA_NIC_PIN_MIN_RATE_GBPS.read()
        ),
    )


def _inproc(agent_name: str) -> Transport:
    from mx_artifacts.transport.inproc import InprocTransport

    return InprocTransport(agent_name)


def _stream(agent_name: str) -> Transport:
    from mx_artifacts.transport.stream.transport import StreamTransport

    return StreamTransport(agent_name)


_FACTORIES: dict[str, Callable[[str], Transport]] = {
    "stream": _stream,
    "nixl": _nixl,
    "inproc": _inproc,
}


def known_transports() -> tuple[str, ...]:
    """Return the names of the transports of this package, the default first."""
    return tuple(_FACTORIES)


def create_transport(name: str, agent_name: str) -> Transport:
    """Create the agent `agent_name` of the transport `name`; the caller closes it.

    What only one transport knows is its own: NIXL's reads MX_NIXL_BACKEND
    and MX_RDMA_NIC_PIN.

    Raises:
        ConfigurationError: no transport has this name.
        TransportUnavailableError: it is not installed or does not start here.
    """
    if name in _FACTORIES:
        return _FACTORIES[name](agent_name)
    make: Callable[[str], Transport] | None = load_entry_point(ENTRY_POINTS, name)
    if make is None:
        raise ConfigurationError(
            f"no transport is called {name!r}; known are {', '.join(_FACTORIES)}",
            hint="use one of them",
        )
    return make(agent_name)


def open_transport(policy: str | None = None) -> Transport:
    """Create this process's agent as `policy` says, by default MX_TRANSPORT; the caller closes it.

    "auto" and "stream": a peer can read what it was granted, and nothing else. "nixl": the caller
    states that everybody in the network may be trusted; the stream is there too, for peers that
    have no NIXL. Any other name is that of an installed package's transport, which is then the
    only one.

    Raises:
        ConfigurationError: the policy names no transport.
        TransportUnavailableError: NIXL is wanted, and not installed or does not start.
    """
    policy = settings.TRANSPORT.read() if policy is None else policy
    if policy not in settings.TRANSPORTS:
        return third_party_transport(policy)(_agent_name())
    return _nixl_and_stream() if policy == settings.NIXL else _only_stream()


def open_target_transport(policy: str | None = None) -> Transport:
    """As `open_transport`, for a process that only reads: where NIXL lacks, the stream will do.

    Raises:
        ConfigurationError: the policy names no transport.
    """
    try:
        return open_transport(policy)
    except TransportUnavailableError as error:
        logger.warning("%s; using the stream transport", error)
        return _only_stream()


def third_party_transport(policy: str) -> Callable[[str], Transport]:
    """Return what makes the transport that MX_TRANSPORT names, where it is an installed package's.

    Raises:
        ConfigurationError: no package has one of this name, or it cannot be loaded.
    """
    # "inproc" is for tests within a process, and so not among them.
    make: Callable[[str], Transport] | None = load_entry_point(ENTRY_POINTS, policy)
    if make is None:
        raise ConfigurationError(
            f"MX_TRANSPORT is {policy!r}, but should be one of {', '.join(settings.TRANSPORTS)}, "
            "or the transport of an installed package",
            hint="correct MX_TRANSPORT, or leave it unset",
        )
    return make


def _only_stream() -> Transport:
    return _stream(_agent_name())


def _nixl_and_stream() -> Transport:
    from mx_artifacts.transport.combined import CombinedTransport
    from mx_artifacts.transport.stream.transport import StreamTransport

    name = _agent_name()
    return CombinedTransport(_nixl(name), StreamTransport(name))


def _agent_name() -> str:
    # Pods may share host name and process id, so neither makes an agent's name unique.
    return f"mx-artifact-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
