"""Admits targets that wait until memory is filled: how many may wait, how long, and how fast."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from mx_artifacts.errors import NoFreeSlotError
from mx_artifacts.runtime.clock import SYSTEM_CLOCK, Clock
from mx_artifacts.runtime.rate_limit import RateLimit

MAX_PREPARES = 64
"""Prepares that wait or fill a slot at once; more are refused at once: the source is busy."""
SLOT_WAIT_SECONDS = 5.0
"""How long a prepare of an attached target waits its turn for a slot."""
PLAIN_SLOT_WAIT_SECONDS = 1.0
"""The same for a peer without a session. The reference's targets hold some leases while they ask
for the next, so letting them wait long would stop each other; they also ask but three times."""


def slot_wait(session_id: str, context: grpc.ServicerContext) -> float:
    """Return how long to wait for a slot: within half of the caller's patience."""
    limit = SLOT_WAIT_SECONDS if session_id else PLAIN_SLOT_WAIT_SECONDS
    remaining = context.time_remaining()
    return limit if remaining is None else max(0.0, min(limit, remaining / 2))


class Turn:
    """The patience of one prepare."""

    def __init__(self, rate: RateLimit, patience_seconds: float, clock: Clock) -> None:
        self._rate = rate
        self._clock = clock
        self._ends_at = clock.monotonic() + patience_seconds

    def remaining(self) -> float:
        """Return the seconds that are left."""
        return max(0.0, self._ends_at - self._clock.monotonic())

    def admit(self, length_bytes: int) -> None:
        """Wait until so many bytes may be given away; NoFreeSlotError where that is too long."""
        wait_seconds = self._rate.reserve(length_bytes, self.remaining())
        if wait_seconds is None:
            raise NoFreeSlotError("the source sends no more bytes per second (--max-rate)")
        self._clock.sleep(wait_seconds)


class AdmissionControl:
    """All prepares of a worker. Any thread."""

    def __init__(self, rate: RateLimit, clock: Clock = SYSTEM_CLOCK) -> None:
        self._rate = rate
        self._clock = clock
        self._places = threading.Semaphore(MAX_PREPARES)

    @contextmanager
    def turn(self, patience_seconds: float) -> Iterator[Turn]:
        """Let one more wait; NoFreeSlotError where enough do."""
        if not self._places.acquire(blocking=False):
            raise NoFreeSlotError(f"{MAX_PREPARES} targets already wait for a slot")
        try:
            yield Turn(self._rate, patience_seconds, self._clock)
        finally:
            self._places.release()
