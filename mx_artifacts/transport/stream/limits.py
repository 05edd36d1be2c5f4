"""Limits for what peers can use of a source's stream listener."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass

_MOST_CONNECTIONS = 1024
"""With what the kernel holds for each (`sockets.UNSENT_BYTES`), 256 MiB at most."""
_SHARE_OF_DESCRIPTORS = 4
"""One connection in so many of the process's file descriptors may be a reader's."""


def _connection_limit() -> int:
    """Return how many readers this process has descriptors for, beside gRPC's and its files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST_CONNECTIONS
    return max(16, min(_MOST_CONNECTIONS, soft // _SHARE_OF_DESCRIPTORS))


@dataclass(frozen=True)
class StreamLimits:
    """Bounds of one listener. Times in seconds.

    Attributes:
        max_connections: maximum number at once. If all are in use, an idle one is closed for a new
            one; if none is idle, new ones wait in the kernel's queue.
        max_silent: maximum number of connections without a valid hello; one more closes the oldest.
            Honest targets need a moment for the hello, too, and hundreds of them may connect at
            once.
        max_share: the part of `max_connections` that one peer address may have, so that one peer
            cannot block all others. Addresses of this machine may have all.
        hello_seconds: time for a hello to arrive, and for a request after its first byte.
        idle_seconds: maximum time between two requests.
        progress_seconds: time in which a reader must take `min_progress_bytes`, or the rest.
    """

    max_connections: int
    max_silent: int
    max_share: float = 0.5
    hello_seconds: float = 10.0
    idle_seconds: float = 60.0
    progress_seconds: float = 30.0
    min_progress_bytes: int = 64 * 1024

    @classmethod
    def of_process(cls) -> StreamLimits:
        """Return limits that fit this process's file descriptors."""
        most = _connection_limit()
        return cls(max_connections=most, max_silent=most // 2)


def is_own_process(process_id: int) -> bool:
    """Return whether this is the process with that id, and no child that was forked from it."""
    return os.getpid() == process_id
