"""One deadline for all steps of a transfer."""

from __future__ import annotations

from mx_artifacts.runtime.clock import Clock

SLOW_HINT = "allow more with --timeout (MX_TRANSFER_TIMEOUT), or see what slows the network down"


class Deadline:
    """A point in time, `seconds` from now. Thread-safe."""

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._clock = clock
        self._end = clock.monotonic() + seconds
        self.budget_seconds = seconds

    def remaining(self) -> float:
        """Return the seconds left, 0 when it has passed."""
        return max(0.0, self._end - self._clock.monotonic())

    @property
    def passed(self) -> bool:
        return self.remaining() == 0.0


class Standstill:
    """Measures for how long nothing has happened. One thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: object = None
        self._since = 0.0

    def seconds(self, marks: object) -> float:
        """Return the seconds since `marks` were others."""
        now = self._clock.monotonic()
        if marks != self._seen:
            self._seen, self._since = marks, now
        return now - self._since
