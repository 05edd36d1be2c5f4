"""A clock that callers pass in, so that tests of leases, reapers and deadlines need not wait."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Wall and monotonic time, and sleeping. Implementations are thread-safe."""

    def now(self) -> float:
        """Return wall-clock time in seconds since the Unix epoch."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go backwards; only differences have a meaning."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block the calling thread for `seconds`."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class FakeClock:
    """A clock that a test moves; `sleep` advances it at once."""

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self._now = start
        self._lock = threading.Lock()

    def now(self) -> float:
        with self._lock:
            return self._now

    def monotonic(self) -> float:
        return self.now()

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Move both clocks forward by `seconds`."""
        with self._lock:
            self._now += seconds


def unix_ms(clock: Clock) -> int:
    """Return the wall clock in milliseconds, the unit of `updated_at` on the wire."""
    return int(clock.now() * 1000)


SYSTEM_CLOCK = SystemClock()
