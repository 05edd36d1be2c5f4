"""The attached targets, and the transport by which each of them reads."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Sequence

from mx_artifacts.errors import (
    ConfigurationError,
    LeaseExpiredError,
    NoFreeSlotError,
    TransportNotAllowedError,
)

_SESSION_ID = re.compile(r"[0-9a-f]{32}")


_OF_PLAIN_PEERS = ("nixl", "inproc")
"""Transports of a target that states none: a target of the reference, or one in this process."""


def choose_transport(stated: Iterable[str], offered: Sequence[str]) -> str:
    """Return the first of the transports that a target has `stated` by which it can read here.

    Raises:
        TransportNotAllowedError: there is none.
    """
    names = tuple(stated)
    for name in names or _OF_PLAIN_PEERS:
        if name in offered:
            return name
    if names:
        raise TransportNotAllowedError(
            f"targets can read from this source by {', '.join(offered)} only"
        )
    raise TransportNotAllowedError(
        "this source does not use NIXL, because with NIXL anyone in the network could write its "
        "memory. If you trust everyone in the network, start the source with MX_TRANSPORT=nixl; "
        "otherwise run the target of mx-artifacts"
    )


class Sessions:
    """The ids of attached targets, `limit` at most. Thread-safe."""

    def __init__(self, limit: int, transports: Sequence[str]) -> None:
        """`transports` are those by which this source can be read."""
        self._limit = limit
        self._transports = transports
        self._lock = threading.Lock()
        self._open: dict[str, str] = {}

    def __len__(self) -> int:
        with self._lock:
            return len(self._open)

    def open(self, session_id: str, transports: Iterable[str]) -> str:
        """Admit a session of a target that has these transports; return the one for its leases.

        Raises:
            ConfigurationError: the id is malformed, or in use.
            TransportNotAllowedError: the source supports none of these transports.
            NoFreeSlotError: too many are attached; the target can continue without a session.
        """
        if not _SESSION_ID.fullmatch(session_id):
            raise ConfigurationError("a session id is 32 lower-case hex characters")
        transport = choose_transport(transports, self._transports)
        with self._lock:
            if session_id in self._open:
                raise ConfigurationError(f"session {session_id} is already attached")
            if len(self._open) >= self._limit:
                raise NoFreeSlotError(f"{self._limit} targets are already attached")
            self._open[session_id] = transport
        return transport

    def transport_of(self, session_id: str, transports: Iterable[str] = ()) -> str:
        """Return the transport of a session's leases; for "" (a plain peer) one of `transports`.

        Raises:
            LeaseExpiredError: the session is not attached.
            TransportNotAllowedError: the source cannot be read by a plain peer with these.
        """
        if not session_id:
            return choose_transport(transports, self._transports)
        with self._lock:
            transport = self._open.get(session_id)
        if transport is None:
            raise LeaseExpiredError(f"session {session_id} is not attached")
        return transport

    def end(self, session_id: str) -> None:
        """Forget a session. Idempotent."""
        with self._lock:
            self._open.pop(session_id, None)

    def check(self, session_id: str) -> None:
        """Accept an attached session, and "" (a plain peer); LeaseExpiredError for any other."""
        with self._lock:
            if session_id and session_id not in self._open:
                raise LeaseExpiredError(f"session {session_id} is not attached")
