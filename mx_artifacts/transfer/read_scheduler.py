"""The board of a transfer: what is still to be read, and who can be asked for it.

Threads take work from it. Each gets the source from which, by what was seen so far, it will have
its bytes soonest; what a source that failed was asked for goes back on the board.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from mx_artifacts.bundle.spans import Span
from mx_artifacts.errors import MxArtifactsError
from mx_artifacts.runtime.clock import Clock
from mx_artifacts.transfer.source import Source
from mx_artifacts.transport.base import PendingRead

REST_SECONDS = 5.0
"""How long a source that stalled is not asked while another one can be; doubled each time."""
_SPEED_WEIGHT = 0.3
"""Of the latest read in a source's mean speed."""


@dataclass
class _Reader:
    """What is known of a source: its mean speed [s/byte], 0 before its first read."""

    source: Source
    reading: int = 0
    seconds_per_byte: float = 0.0
    rests_until: float = 0.0
    rest_seconds: float = 0.0
    stalled: list[PendingRead] = field(default_factory=list)

    def rests(self, now: float) -> bool:
        """Tell whether another one should rather be asked.

        It rests for as long as a read that was given up is under way, too: each holds a buffer.
        """
        self.stalled = [read for read in self.stalled if not read.done()]
        return self.rests_until > now or bool(self.stalled)


class ReadScheduler:
    """Spans to read and sources to read them from. Any thread."""

    def __init__(
        self,
        spans: Iterable[Span],
        chunk_size_bytes: int,
        clock: Clock,
        *,
        max_reads_per_source: int | None = None,
    ) -> None:
        self._todo: deque[Span] = deque(spans)
        self._chunk_size_bytes = chunk_size_bytes
        self._clock = clock
        self._max_reads_per_source = max_reads_per_source
        self._changed = threading.Condition()
        self._readers: dict[Source, _Reader] = {}
        self._closed = False
        self._news = 0
        self._is_tried = False
        self._delivered: Counter[str] = Counter()
        self.total = len(self._todo)
        self.done = 0
        self.done_bytes = 0

    # --- work ------------------------------------------------------------------------------------

    def take(self, timeout_seconds: float) -> tuple[Source, deque[Span]] | None:
        """Return a source and spans to read from it, one after the other; None: see `is_over`.

        From a source that leases chunks these are all that are left of a chunk.
        """
        with self._changed:
            self._changed.wait_for(self._has_work_or_is_over, timeout_seconds)
            reader = None if self.is_over else self._best()
            if reader is None:
                return None
            spans = self._cut(reader.source)
            if not spans:  # it lost what it had a moment ago
                return None
            reader.reading += 1
            return reader.source, spans

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to do any more: all is done, or it was closed."""
        return self._closed or self.done == self.total

    def _has_work_or_is_over(self) -> bool:
        return self.is_over or self._best() is not None

    def _best(self) -> _Reader | None:
        """Return the source that will deliver first, of those that have something we lack.

        One that rests is asked only where all do, even if those that do not are busy.
        """
        if not self._todo:
            return None
        now = self._clock.monotonic()
        having = [
            reader
            for reader in self._readers.values()
            if reader.source.is_complete or any(map(reader.source.has, self._todo))
        ]
        rested = [reader for reader in having if not reader.rests(now)] or having
        return min(
            filter(self._may_read, rested),
            key=lambda r: ((r.reading + 1) * r.seconds_per_byte, r.reading),
            default=None,
        )

    def _may_read(self, reader: _Reader) -> bool:
        """Tell whether one more may read from it.

        Where others are known to deliver, or to stall, a source has to show by one read that it
        delivers: each that stalls holds a buffer until it ends, which may be never.
        """
        limit = self._max_reads_per_source
        if reader.stalled or (self._is_tried and not reader.seconds_per_byte):
            limit = 1
        return limit is None or reader.reading < limit

    def _cut(self, source: Source) -> deque[Span]:
        first = next((span for span in self._todo if source.has(span)), None)
        if first is None:
            return deque()
        cut = deque([first])
        if source.leases_chunks:
            number = first.offset // self._chunk_size_bytes
            cut = deque(
                span
                for span in self._todo
                if span.file_index == first.file_index
                and span.offset // self._chunk_size_bytes == number
            )
        if len(cut) == 1 and self._todo[0] is first:
            self._todo.popleft()
        else:
            taken = set(cut)
            self._todo = deque(span for span in self._todo if span not in taken)
        return cut

    def read(self, source: Source, span: Span, seconds: float) -> None:
        """Hear that a source has delivered a span, and how long that took."""
        with self._changed:
            reader = self._readers.get(source)
            if reader is not None:
                self._is_tried = True
                self._delivered[source.address.endpoint] += span.length
                latest, mean = seconds / span.length, reader.seconds_per_byte
                reader.seconds_per_byte = mean + _SPEED_WEIGHT * (latest - mean) if mean else latest
                if not mean:  # more than one may read from it now
                    self._changed.notify_all()

    def finished(self, span: Span) -> None:
        """Hear that a span is verified and written."""
        with self._changed:
            self.done += 1
            self.done_bytes += span.length
            if self.is_over:
                self._changed.notify_all()

    def give_back(self, source: Source, spans: Sequence[Span]) -> None:
        """Hear that nobody reads from `source` any more what was taken; `spans` are left of it."""
        with self._changed:
            self._todo.extendleft(reversed(spans))
            if source in self._readers:
                self._readers[source].reading -= 1
            self._changed.notify_all()

    def close(self) -> None:
        """Let everybody stop. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    # --- sources ---------------------------------------------------------------------------------

    def add(self, source: Source) -> None:
        """Ask `source`, too."""
        with self._changed:
            self._readers[source] = _Reader(source)
            self._changed.notify_all()

    def drop(self, source: Source) -> bool:
        """Ask `source` no more; False where that was known."""
        with self._changed:
            dropped = self._readers.pop(source, None) is not None
            self._changed.notify_all()
            return dropped

    def drop_useless(self) -> Source | None:
        """Ask one no more that has nothing of what we lack, and of which nobody reads."""
        with self._changed:
            for reader in self._readers.values():
                source = reader.source
                if not reader.reading and not any(map(source.has, self._todo)):
                    del self._readers[source]
                    return source
        return None

    def rest(self, source: Source, stalled: PendingRead | None = None) -> None:
        """Ask `source` again only after a while, or when nobody else is left.

        `stalled` is a read from it that was given up.
        """
        with self._changed:
            reader, now = self._readers.get(source), self._clock.monotonic()
            if reader is None:
                return
            self._is_tried = True
            if stalled is not None:
                reader.stalled.append(stalled)
            if reader.rests_until <= now:
                reader.rest_seconds = 2 * reader.rest_seconds or REST_SECONDS
                reader.rests_until = now + reader.rest_seconds

    def news(self) -> None:
        """Hear that a source has more than before."""
        with self._changed:
            self._news += 1
            self._changed.notify_all()

    def sources(self) -> list[Source]:
        """Return the sources that are asked."""
        with self._changed:
            return list(self._readers)

    def active_count(self) -> int:
        """Return how many of the sources do not rest."""
        with self._changed:
            now = self._clock.monotonic()
            return sum(not reader.rests(now) for reader in self._readers.values())

    def is_moving(self) -> bool:
        """Tell whether something is read from those that are asked, or could be."""
        with self._changed:
            if any(reader.reading for reader in self._readers.values()):
                return True
            return self._best() is not None

    def asks(self, source: Source) -> bool:
        """Tell whether `source` is asked."""
        with self._changed:
            return source in self._readers

    def marks(self) -> tuple[int, int]:
        """Return numbers that grow when a span was finished, or a source has more to give."""
        with self._changed:
            return self.done, self._news

    def delivered(self) -> dict[str, int]:
        """Return how many bytes came from whom, by endpoint; damaged ones count too."""
        with self._changed:
            return dict(self._delivered)

    def has_delivered(self, source: Source) -> bool:
        """Tell whether something came from `source`, which is asked."""
        with self._changed:
            return source in self._readers and self._readers[source].seconds_per_byte > 0

    def has_other(self, source: Source, span: Span) -> bool:
        """Tell whether another source that does not rest has `span`."""
        with self._changed:
            now = self._clock.monotonic()
            return any(
                other.source is not source and other.source.has(span) and not other.rests(now)
                for other in self._readers.values()
            )

    def usual_seconds(self, length_bytes: int) -> float:
        """Return how long the fastest source needs for so many bytes; 0 while none is known."""
        with self._changed:
            speeds = [r.seconds_per_byte for r in self._readers.values() if r.seconds_per_byte]
            return min(speeds, default=0.0) * length_bytes


class SourceFailed(Exception):
    """A source failed, for this transfer: others may go on. `error` is what it failed by."""

    def __init__(self, error: MxArtifactsError) -> None:
        super().__init__(str(error))
        self.error = error
