"""One end for all steps of a transfer."""

from __future__ import annotations

from mx_artifacts.clock import Clock

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
