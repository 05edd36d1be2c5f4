"""Remembers which sources failed, and which of them are worth another try, and when."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass

from mx_artifacts.errors import IntegrityError, MxArtifactsError
from mx_artifacts.runtime.clock import Clock
from mx_artifacts.transfer.source import SourceAddress

RETRY_SECONDS = (0.5, 4.0)
"""How long a source that was lost and is still listed is left alone: at first, and at most."""


@dataclass
class _Lost:
    pause_seconds: float
    retry_at: float


class SourceHealth:
    """Sources that failed. Any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._lost: dict[SourceAddress, _Lost] = {}

    def __len__(self) -> int:
        """Return how many failed, each counted once."""
        return len(self._lost)

    def __contains__(self, address: SourceAddress) -> bool:
        return address in self._lost

    def add(self, address: SourceAddress, error: MxArtifactsError) -> None:
        """Note that a source failed: for good where it told something wrong, else for a while."""
        shortest, longest = RETRY_SECONDS
        with self._lock:
            before = self._lost.get(address)
            pause = shortest if before is None else min(2 * before.pause_seconds, longest)
            is_wrong = isinstance(error, IntegrityError)
            retry_at = math.inf if is_wrong else self._clock.monotonic() + pause
            self._lost[address] = _Lost(pause, retry_at)

    def take_for_retry(self, address: SourceAddress) -> bool:
        """Tell whether to try a source once more, now; not again until it has failed again."""
        with self._lock:
            lost = self._lost.get(address)
            if lost is None or self._clock.monotonic() < lost.retry_at:
                return False
            lost.retry_at = math.inf
            return True
