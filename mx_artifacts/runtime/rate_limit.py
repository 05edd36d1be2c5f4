"""Limits the number of bytes per second."""

from __future__ import annotations

import threading

from mx_artifacts.runtime.clock import SYSTEM_CLOCK, Clock


class RateLimit:
    """Limits all callers together to `bytes_per_second`; None: no limit. Any thread.

    `reserve` returns how long to wait, in the order of the calls. Unused bytes are not saved, so no
    burst follows a pause.
    """

    def __init__(self, bytes_per_second: float | None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._lock = threading.Lock()
        self._free_at = 0.0

    @property
    def is_set(self) -> bool:
        """Whether there is a limit."""
        return self._bytes_per_second is not None

    def reserve(self, length_bytes: int, max_wait_seconds: float) -> float | None:
        """Return in how many seconds `length_bytes` may go by; None, and no claim, if that is too
        long."""
        if self._bytes_per_second is None:
            return 0.0
        with self._lock:
            now = self._clock.monotonic()
            starts_at = max(now, self._free_at)
            if starts_at - now > max_wait_seconds:
                return None
            self._free_at = starts_at + length_bytes / self._bytes_per_second
            return starts_at - now

    def give_back(self, length_bytes: int) -> None:
        """Let others have so much of what was reserved: it did not go by."""
        if self._bytes_per_second is not None:
            with self._lock:
                self._free_at -= length_bytes / self._bytes_per_second
