"""Opens what several verbs need: the central server's client and the data plane."""

from __future__ import annotations

import os
import socket
import uuid
from contextlib import AbstractContextManager, closing
from typing import TYPE_CHECKING

from mx_artifacts import settings

if TYPE_CHECKING:
    from mx_artifacts.client.central import CentralClient
    from mx_artifacts.transport.base import Transport


def open_client(server: str) -> AbstractContextManager[CentralClient]:
    """Return a client of the central server at `server` (host:port); it connects on first use."""
    from mx_artifacts.client.central import CentralClient

    return closing(CentralClient(server, timeout_seconds=settings.SOURCE_QUERY_TIMEOUT.read()))


def open_transport() -> Transport:
    """Start this process's agent of the transport that MX_TRANSPORT names.

    Raises:
        ConfigurationError, TransportUnavailableError
    """
    from mx_artifacts.transport.registry import create_transport

    # Pods may share host name and process id, so neither makes an agent's name unique.
    agent_name = f"mx-artifact-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    return create_transport(
        settings.TRANSPORT.read(), agent_name, nixl_backend=settings.NIXL_BACKEND.read()
    )
