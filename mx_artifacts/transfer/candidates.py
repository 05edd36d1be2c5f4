"""Addresses of sources that a transfer may open: new, busy, or lost and worth another try."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from mx_artifacts.errors import IntegrityError, MxArtifactsError
from mx_artifacts.runtime.clock import Clock
from mx_artifacts.transfer.base import SourceAddress
from mx_artifacts.transfer.timing import TransferTiming


@dataclass
class _Loss:
    pause_seconds: float
    retry_at: float


class Candidates:
    """Addresses by what is known of them. Any thread."""

    def __init__(self, clock: Clock, timing: TransferTiming) -> None:
        self._clock = clock
        self._timing = timing
        self._lock = threading.Lock()
        self._waiting: deque[SourceAddress] = deque()
        self._busy: list[SourceAddress] = []
        self._known: set[SourceAddress] = set()
        self._losses: dict[SourceAddress, _Loss] = {}

    @property
    def has_waiting(self) -> bool:
        """Whether an address waits to be opened."""
        return bool(self._waiting)

    @property
    def has_busy(self) -> bool:
        """Whether a source refused for lack of a slot since the last `retry_busy`."""
        return bool(self._busy)

    @property
    def lost_count(self) -> int:
        """How many sources have failed, each counted once."""
        return len(self._losses)

    def know(self, address: SourceAddress) -> None:
        """Note an address that is opened already."""
        with self._lock:
            self._known.add(address)

    def offer(self, addresses: Iterable[SourceAddress]) -> None:
        """Queue the addresses that are new, and lost ones whose pause is over."""
        with self._lock:
            for address in addresses:
                if address not in self._known:
                    self._known.add(address)
                    self._waiting.append(address)
                elif self._may_retry(address):
                    self._losses[address].retry_at = math.inf  # until it is lost again
                    self._waiting.append(address)

    def _may_retry(self, address: SourceAddress) -> bool:
        loss = self._losses.get(address)
        return loss is not None and self._clock.monotonic() >= loss.retry_at

    def take(self) -> SourceAddress | None:
        """Return the next address to open; None if none waits."""
        with self._lock:
            return self._waiting.popleft() if self._waiting else None

    def put_first(self, address: SourceAddress) -> None:
        """Queue an address before all others."""
        with self._lock:
            self._waiting.appendleft(address)

    def put_last(self, address: SourceAddress) -> None:
        """Queue an address after all others."""
        with self._lock:
            self._waiting.append(address)

    def note_busy(self, address: SourceAddress) -> None:
        """Note that a source had no free slot; `retry_busy` queues it again."""
        with self._lock:
            self._busy.append(address)

    def retry_busy(self) -> None:
        """Queue the sources that were busy."""
        with self._lock:
            self._waiting += self._busy
            self._busy.clear()

    def note_lost(self, address: SourceAddress, error: MxArtifactsError) -> None:
        """Note that a source failed: for good if its data was wrong, else for a while."""
        with self._lock:
            before = self._losses.get(address)
            pause = self._timing.first_retry
            if before is not None:
                pause = min(2 * before.pause_seconds, self._timing.last_retry)
            is_wrong = isinstance(error, IntegrityError)
            retry_at = math.inf if is_wrong else self._clock.monotonic() + pause
            self._losses[address] = _Loss(pause, retry_at)
