"""Ends a resource when its last user has left."""

from __future__ import annotations

import threading
from collections.abc import Callable

from mx_artifacts.errors import LeaseError


class RefCounted:
    """Counts users; calls `on_end` once, when closed and the last user has left."""

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._on_end = on_end
        self._users = 0
        self._closed = False
        self._ended = False

    def enter(self) -> None:
        with self._lock:
            if self._closed:
                raise LeaseError("the artifact is no longer served")
            self._users += 1

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
        self._end_if_over()

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._end_if_over()

    def _end_if_over(self) -> None:
        with self._lock:
            over = self._closed and not self._users and not self._ended
            self._ended = self._ended or over
        if over:
            self._on_end()
