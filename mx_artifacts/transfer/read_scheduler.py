"""Schedules the reads of a transfer: which extent is read next, and from which source.

A thread that takes work gets the source which, by the speeds seen so far, will deliver first.
Extents that a failed source did not deliver are read from others.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic

from mx_artifacts.runtime.clock import Clock
from mx_artifacts.transfer.base import E, ReadableSource
from mx_artifacts.transfer.timing import DEFAULT_TIMING, TransferTiming
from mx_artifacts.transport.base import PendingRead

_SPEED_WEIGHT = 0.3
"""Weight of the latest read in a source's mean speed."""


@dataclass
class _SourceLoad(Generic[E]):
    """What is known of a source: its mean speed [s/byte], 0 before its first read."""

    source: ReadableSource[E]
    reading: int = 0
    seconds_per_byte: float = 0.0
    rests_until: float = 0.0
    rest_seconds: float = 0.0
    stalled: list[PendingRead] = field(default_factory=list)

    def rests(self, now: float) -> bool:
        """Return whether another source should be asked instead.

        A source also rests while a read that was given up is under way: each holds a buffer.
        """
        self.stalled = [read for read in self.stalled if not read.done()]
        return self.rests_until > now or bool(self.stalled)


class ReadScheduler(Generic[E]):
    """Extents to read and sources to read them from. Any thread."""

    def __init__(
        self,
        extents: Iterable[E],
        clock: Clock,
        *,
        max_reads_per_source: int | None = None,
        timing: TransferTiming = DEFAULT_TIMING,
    ) -> None:
        """`max_reads_per_source`: how many threads may read from one source; None: any number."""
        self._todo: deque[E] = deque(extents)
        self._clock = clock
        self._timing = timing
        self._max_reads_per_source = max_reads_per_source
        self._changed = threading.Condition()
        self._loads: dict[ReadableSource[E], _SourceLoad[E]] = {}
        self._closed = False
        self._availability_changes = 0
        self._is_tried = False
        self._delivered: Counter[str] = Counter()
        self.total = len(self._todo)
        self.done = 0
        self.done_bytes = 0

    # --- work ------------------------------------------------------------------------------------

    def take(self, timeout_seconds: float) -> tuple[ReadableSource[E], deque[E]] | None:
        """Return a source and extents to read from it in turn; None if there is nothing to read.

        Waits for `timeout_seconds` at most. Every call that returns work is followed by one of
        `give_back`.
        """
        with self._changed:
            self._changed.wait_for(self._has_work_or_is_over, timeout_seconds)
            reader = None if self.is_over else self._best()
            if reader is None:
                return None
            extents = self._cut(reader.source)
            if not extents:  # it lost what it had a moment ago
                return None
            reader.reading += 1
            return reader.source, extents

    @property
    def is_over(self) -> bool:
        """Whether there is nothing left to do: everything is done, or it was closed."""
        return self._closed or self.done == self.total

    def _has_work_or_is_over(self) -> bool:
        return self.is_over or self._best() is not None

    def _best(self) -> _SourceLoad[E] | None:
        """Return the source that will deliver first, of those that have something we lack.

        One that rests is asked only where all do, even if those that do not are busy.
        """
        if not self._todo:
            return None
        now = self._clock.monotonic()
        having = [
            reader
            for reader in self._loads.values()
            if reader.source.is_complete or any(map(reader.source.has, self._todo))
        ]
        rested = [reader for reader in having if not reader.rests(now)] or having
        return min(
            filter(self._may_read, rested),
            key=lambda r: ((r.reading + 1) * r.seconds_per_byte, r.reading),
            default=None,
        )

    def _may_read(self, reader: _SourceLoad[E]) -> bool:
        """Return whether one more may read from it.

        Where others are known to deliver, or to stall, a source has to show by one read that it
        delivers: each that stalls holds a buffer until it ends, which may be never.
        """
        limit = self._max_reads_per_source
        if reader.stalled or (self._is_tried and not reader.seconds_per_byte):
            limit = 1
        return limit is None or reader.reading < limit

    def _cut(self, source: ReadableSource[E]) -> deque[E]:
        first = next((extent for extent in self._todo if source.has(extent)), None)
        if first is None:
            return deque()
        cut = deque(source.batch_of(first, self._todo))
        if len(cut) == 1 and self._todo[0] is first:
            self._todo.popleft()
        else:
            taken = set(cut)
            self._todo = deque(extent for extent in self._todo if extent not in taken)
        return cut

    def record_read(self, source: ReadableSource[E], extent: E, seconds: float) -> None:
        """Note that a source has delivered an extent in `seconds`."""
        with self._changed:
            reader = self._loads.get(source)
            if reader is not None:
                self._is_tried = True
                self._delivered[source.address.endpoint] += extent.length
                latest, mean = seconds / extent.length, reader.seconds_per_byte
                reader.seconds_per_byte = mean + _SPEED_WEIGHT * (latest - mean) if mean else latest
                if not mean:  # more than one may read from it now
                    self._changed.notify_all()

    def finished(self, extent: E) -> None:
        """Note that an extent is verified and written."""
        with self._changed:
            self.done += 1
            self.done_bytes += extent.length
            if self.is_over:
                self._changed.notify_all()

    def give_back(self, source: ReadableSource[E], extents: Sequence[E]) -> None:
        """Note that a thread no longer reads from `source`; `extents` it did not finish."""
        with self._changed:
            self._todo.extendleft(reversed(extents))
            if source in self._loads:
                self._loads[source].reading -= 1
            self._changed.notify_all()

    def close(self) -> None:
        """Hand out no more work. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    # --- sources ---------------------------------------------------------------------------------

    def add(self, source: ReadableSource[E]) -> None:
        """Read from `source` too."""
        with self._changed:
            self._loads[source] = _SourceLoad(source)
            self._changed.notify_all()

    def drop(self, source: ReadableSource[E]) -> bool:
        """Read from `source` no more; return False if that was known."""
        with self._changed:
            dropped = self._loads.pop(source, None) is not None
            self._changed.notify_all()
            return dropped

    def drop_useless(self) -> ReadableSource[E] | None:
        """Drop and return a source that has nothing of the rest and is not read from, if any."""
        with self._changed:
            for reader in self._loads.values():
                source = reader.source
                if not reader.reading and not any(map(source.has, self._todo)):
                    del self._loads[source]
                    return source
        return None

    def back_off(self, source: ReadableSource[E], stalled: PendingRead | None = None) -> None:
        """Use `source` again only after a pause, or if no other source is left.

        `stalled` is a read from it that was given up.
        """
        with self._changed:
            reader, now = self._loads.get(source), self._clock.monotonic()
            if reader is None:
                return
            self._is_tried = True
            if stalled is not None:
                reader.stalled.append(stalled)
            if reader.rests_until <= now:
                reader.rest_seconds = 2 * reader.rest_seconds or self._timing.rest
                reader.rests_until = now + reader.rest_seconds

    def availability_changed(self) -> None:
        """Note that a source has more than before."""
        with self._changed:
            self._availability_changes += 1
            self._changed.notify_all()

    def sources(self) -> list[ReadableSource[E]]:
        """Return the sources that are asked."""
        with self._changed:
            return list(self._loads)

    def active_count(self) -> int:
        """Return how many of the sources do not rest."""
        with self._changed:
            now = self._clock.monotonic()
            return sum(not reader.rests(now) for reader in self._loads.values())

    def is_moving(self) -> bool:
        """Return whether something is read from those that are asked, or could be."""
        with self._changed:
            if any(reader.reading for reader in self._loads.values()):
                return True
            return self._best() is not None

    def has_source(self, source: ReadableSource[E]) -> bool:
        """Return whether `source` is asked."""
        with self._changed:
            return source in self._loads

    def progress_marks(self) -> tuple[int, int]:
        """Return numbers that grow when an extent was finished, or a source has more to give."""
        with self._changed:
            return self.done, self._availability_changes

    def delivered(self) -> dict[str, int]:
        """Return how many bytes came from whom, by endpoint; damaged ones count too."""
        with self._changed:
            return dict(self._delivered)

    def has_delivered(self, source: ReadableSource[E]) -> bool:
        """Return whether something came from `source`, which is asked."""
        with self._changed:
            return source in self._loads and self._loads[source].seconds_per_byte > 0

    def has_other(self, source: ReadableSource[E], extent: E) -> bool:
        """Return whether another source that does not rest has `extent`."""
        with self._changed:
            now = self._clock.monotonic()
            return any(
                other.source is not source and other.source.has(extent) and not other.rests(now)
                for other in self._loads.values()
            )

    def usual_seconds(self, length_bytes: int) -> float:
        """Return how long the fastest source needs for so many bytes; 0 while none is known."""
        with self._changed:
            speeds = [r.seconds_per_byte for r in self._loads.values() if r.seconds_per_byte]
            return min(speeds, default=0.0) * length_bytes
