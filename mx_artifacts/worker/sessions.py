"""Which targets are attached: those whose stream to this source is open."""

from __future__ import annotations

import re
import threading

from mx_artifacts.errors import ConfigurationError, LeaseExpiredError, NoFreeSlotError

_SESSION_ID = re.compile(r"[0-9a-f]{32}")


class Sessions:
    """The ids of attached targets, `limit` at most. Thread-safe."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._open: set[str] = set()

    def __len__(self) -> int:
        with self._lock:
            return len(self._open)

    def open(self, session_id: str) -> None:
        """Admit a session.

        Raises:
            ConfigurationError: the id is malformed, or in use.
            NoFreeSlotError: too many are attached; the target can go on without a session.
        """
        if not _SESSION_ID.fullmatch(session_id):
            raise ConfigurationError("a session id is 32 lower-case hex characters")
        with self._lock:
            if session_id in self._open:
                raise ConfigurationError(f"session {session_id} is attached already")
            if len(self._open) >= self._limit:
                raise NoFreeSlotError(f"{self._limit} targets are attached already")
            self._open.add(session_id)

    def end(self, session_id: str) -> None:
        """Forget a session. Idempotent."""
        with self._lock:
            self._open.discard(session_id)

    def check(self, session_id: str) -> None:
        """Accept an attached session, and "" (a plain peer); LeaseExpiredError for any other."""
        with self._lock:
            if session_id and session_id not in self._open:
                raise LeaseExpiredError(f"session {session_id} is not attached")
