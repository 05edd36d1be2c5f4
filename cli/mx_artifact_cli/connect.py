"""Opens the client of the central server that several verbs use."""

from __future__ import annotations

from contextlib import AbstractContextManager, closing
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mx_artifacts.client.central import CentralClient


def open_client(server: str) -> AbstractContextManager[CentralClient]:
    """Return a client of the central server at `server` (host:port); it connects on first use."""
    from mx_artifacts.client.central import CentralClient

    return closing(CentralClient(server))
