"""Decides, for each source, whether bytes are sent plain or compressed."""

from __future__ import annotations

import statistics
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from mx_artifacts.compression import NONE, ZSTD, encodings
from mx_artifacts.runtime.clock import SYSTEM_CLOCK, Clock

FAST_BYTES_PER_SECOND = 150e6
"""A link that carries this is left alone: compressing takes a core of the source, which has other
work, and gains little (zstd makes 100 to 400 MB/s, docs/performance.md)."""
LEAST_BYTES = 64 * 1024
"""Of a span that may come compressed: below, the further calls cost more."""
MEASURED_BYTES = 1024 * 1024
"""Carried before anything else is tried."""
REMEMBERED_BYTES = 32 * 1024 * 1024
"""What was carried before counts half."""
PROBES = 2
"""Spans that come compressed before it is judged."""
PROBE_EVERY = 16
"""Every n-th plain span is compressed anyway: one incompressible file does not predict the next."""
REMEMBERED_BLOCKS = 6
"""That it is judged by: their mean size, and the median of what they took."""
MARGIN = 0.9
"""Of a plain read's time that a compressed one must stay below."""


class LinkMeter:
    """Measures how fast bytes arrive at all readers together: the number of bytes, divided by the
    time in which at least one read was running. Any thread."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._active = 0
        self._since = 0.0
        self._connected = False
        self._busy_seconds = 0.0
        self._carried_bytes = 0.0

    @contextmanager
    def carrying(self, length_bytes: int) -> Iterator[None]:
        """Let a read of so many bytes begin, and end; one that fails is not counted.

        Nor are those that began before the first one had ended: they paid for the connection.
        """
        is_counted = self._connected
        self._turn(+1, 0)
        try:
            yield
        except BaseException:
            self._turn(-1, 0)
            raise
        self._turn(-1, length_bytes if is_counted else 0)
        self._connected = True

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time in which a source makes us wait, by intent, for what it carries then."""
        self._turn(+1, 0)
        try:
            yield
        finally:
            self._turn(-1, 0)

    def _turn(self, change: int, carried_bytes: int) -> None:
        with self._lock:
            now = self._clock.monotonic()
            if self._active and self._connected:
                self._busy_seconds += now - self._since
            self._since = now
            self._active += change
            self._carried_bytes += carried_bytes
            if self._carried_bytes > REMEMBERED_BYTES:
                self._carried_bytes /= 2
                self._busy_seconds /= 2

    def seconds_per_byte(self) -> float | None:
        """Return what a byte takes; None before it is known."""
        with self._lock:
            if self._carried_bytes < MEASURED_BYTES:
                return None
            return self._busy_seconds / self._carried_bytes


@dataclass(frozen=True)
class _Block:
    """Size as carried by size, and the time [s/byte] that a block took besides that on the link."""

    ratio: float
    seconds_per_byte: float


class CompressionPolicy:
    """Of one source. Any thread."""

    def __init__(self, mode: str, max_bytes_per_second: float | None, link: LinkMeter) -> None:
        """Leave everything plain until `on_offer` is called.

        `max_bytes_per_second` is what this target takes: the link cannot be faster.
        """
        self._mode = mode
        self._least_seconds_per_byte = 1 / max_bytes_per_second if max_bytes_per_second else 0.0
        self._link = link
        self._lock = threading.Lock()
        self._on = False
        self.is_limited = False
        """Whether the source gives its bytes more slowly than it compresses."""
        self._asked = 0
        self._blocks: deque[_Block] = deque(maxlen=REMEMBERED_BLOCKS)

    def on_offer(self, by_source: tuple[str, ...], max_bytes_per_second: int = 0) -> None:
        """Note the encodings that a source offers, and its rate for all targets; 0: no limit."""
        self._on = self._mode != NONE and ZSTD in by_source and ZSTD in encodings()
        self.is_limited = 0 < max_bytes_per_second < FAST_BYTES_PER_SECOND
        if self.is_limited:
            at_least = 1 / max_bytes_per_second
            self._least_seconds_per_byte = max(self._least_seconds_per_byte, at_least)

    def disable(self) -> None:
        """Read everything plain from now on: the source cannot compress after all."""
        self._on = False

    @property
    def is_worthwhile(self) -> bool:
        """Whether spans are read compressed, except small ones."""
        if self._mode == ZSTD or not self._on:
            return self._on
        link = self._seconds_per_byte()
        with self._lock:
            return len(self._blocks) >= PROBES and self._is_better(link)

    def should_compress(self, length_bytes: int) -> bool:
        """Return whether to read the next span, of `length_bytes`, compressed."""
        if self._mode == ZSTD or not self._on:
            return self._on
        link = self._seconds_per_byte()
        if length_bytes < LEAST_BYTES or link < 1 / FAST_BYTES_PER_SECOND:
            return False
        with self._lock:
            if len(self._blocks) >= PROBES and self._is_better(link):
                return True
            self._asked += 1
            return self._asked <= PROBES or self._asked % PROBE_EVERY == 0

    def record(self, length_bytes: int, stored_bytes: int, seconds: float, at_once: int) -> None:
        """Note a block of `length_bytes` that was carried as `stored_bytes`.

        `seconds` is what it took besides its time on the link, while this target had `at_once`
        blocks under way.
        """
        besides = seconds / max(1, at_once) / length_bytes
        with self._lock:
            self._blocks.append(_Block(stored_bytes / length_bytes, besides))

    def _seconds_per_byte(self) -> float:
        """Return what a byte takes on the link; 0: not known, or nothing."""
        measured = self._link.seconds_per_byte()
        if measured is None and not self.is_limited:
            return 0.0
        return max(measured or 0.0, self._least_seconds_per_byte)

    def _is_better(self, link: float) -> bool:
        ratio = statistics.fmean(each.ratio for each in self._blocks)
        besides = statistics.median_low([each.seconds_per_byte for each in self._blocks])
        return ratio * link + besides < MARGIN * link
