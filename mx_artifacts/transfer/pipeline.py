"""Moves spans: several at once, each on its own way, with no barrier between them.

A span's way: buffer -> read from a source -> verify -> write. A source that fails, gives wrong
bytes or stalls is left behind, and what it was asked for is read from another.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mx_artifacts.bundle.spans import Span
from mx_artifacts.errors import (
    ChunkChecksumError,
    MxArtifactsError,
    NoFreeSlotError,
    ReadTimeoutError,
    RegistrationError,
    TransportUnavailableError,
)
from mx_artifacts.memory.pool import BufferPool, PooledBuffer
from mx_artifacts.observability.catalogue import SpanReceived
from mx_artifacts.observability.events import EventSink
from mx_artifacts.runtime.clock import SYSTEM_CLOCK
from mx_artifacts.runtime.deadline import SLOW_HINT, Deadline
from mx_artifacts.runtime.rate_limit import RateLimit
from mx_artifacts.runtime.threads import WorkStopped, thread_count
from mx_artifacts.transfer.read_scheduler import ReadScheduler, SourceFailed
from mx_artifacts.transfer.readers import Reader
from mx_artifacts.transfer.receiver import Receiver
from mx_artifacts.transfer.source import Source
from mx_artifacts.transport.base import PendingRead

logger = logging.getLogger(__name__)

MAX_CORRUPT_READS = 2
"""Damaged arrivals of one span that are read again; one more, and the source counts as broken."""
READ_SLICE_SECONDS = 0.25
"""How long a stalled read goes unwatched: bounds the notice of a lost source or another's error."""
STALLED_SLICES = 20
"""A read that stalls this often in a row (5 s) makes us ask the source whether it still answers."""
OVERTIME_SECONDS = 2.0
"""Threads notice the deadline by themselves, unless the transport does not let go of them."""
MIN_STALL_SECONDS = 1.0
"""A read that another source could do is given up after this, or after `STALL_FACTOR` times what
the fastest source needs for it, whichever is longer."""
STALL_FACTOR = 8.0


@dataclass(frozen=True)
class Target:
    """What a pipeline works with: all of it the caller's."""

    board: ReadScheduler
    pool: BufferPool
    receiver: Receiver
    deadline: Deadline
    rate: RateLimit
    rng: random.Random
    events: EventSink


class Pipeline:
    """Receives what is on the board with up to `threads` threads. Use once: `run`, then `close`."""

    def __init__(self, target: Target, threads: int) -> None:
        self._target = target
        self._board = target.board
        self._stop = threading.Event()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._running = 0
        self._error: BaseException | None = None
        self._on_source_failure: Callable[[Source, MxArtifactsError], None]
        self._threads = [
            threading.Thread(target=self._work, name=f"mx-transfer-{n}", daemon=True)
            for n in range(threads)
        ]
        self._waiting = self._threads

    def run(self, on_source_failure: Callable[[Source, MxArtifactsError], None]) -> None:
        """Return when every span was written; raise the first error that ends it otherwise.

        `on_source_failure` hears, from any thread, what a source failed by.

        Raises:
            ReadTimeoutError, what the receiver raises, and what `fail` was given.
        """
        self._on_source_failure = on_source_failure
        self._start(len(self._threads) if self._target.receiver.waits else thread_count())
        self._over.wait(self._target.deadline.remaining() + OVERTIME_SECONDS)
        if self._error is not None:
            raise self._error
        if self._board.done != self._board.total:  # a hole must never look like a file
            raise self._too_late()

    def spread(self) -> None:
        """Put all threads to work, since one waits. Any of them.

        On one host a read is copied by who posts it: then threads beyond the cores only get into
        each other's way, and their buffers out of the caches (docs/performance.md).
        """
        if self._waiting:
            self._start(len(self._threads))

    def _start(self, count: int) -> None:
        """Let so many threads work more, if there are as many."""
        with self._lock:
            starting, self._waiting = self._waiting[:count], self._waiting[count:]
            self._running += len(starting)
        for thread in starting:
            thread.start()

    def fail(self, error: BaseException) -> None:
        """End all work with `error`, unless another one was first. Any thread."""
        with self._lock:
            self._error = self._error or error
        self._stop.set()
        self._board.close()
        self._target.receiver.stop()
        self._over.set()

    def close(self, timeout_seconds: float) -> bool:
        """Stop what still runs; True when all threads ended in time."""
        self._stop.set()
        self._board.close()
        wait = Deadline(timeout_seconds, SYSTEM_CLOCK)
        for thread in self._threads:
            if thread.is_alive():
                thread.join(wait.remaining())
        return not any(thread.is_alive() for thread in self._threads)

    def progress(self) -> str:
        """Say how far it got."""
        board = self._board
        return f"{board.done} of {board.total} chunks, {board.done_bytes} bytes arrived"

    # --- one thread ------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while not (self._board.is_over or self._stop.is_set()):
                work = self._board.take(READ_SLICE_SECONDS)
                if work is not None:
                    self._take_from(*work)
                elif self._target.deadline.passed:
                    raise self._too_late()
        except WorkStopped:
            pass
        except BaseException as error:
            self.fail(error)
        finally:
            with self._lock:
                self._running -= 1
                if self._running == 0:
                    self._over.set()

    def _take_from(self, source: Source, spans: deque[Span]) -> None:
        """Receive `spans` from `source`, as far as it goes."""
        way = _ReadContext(self, source)
        try:
            with source.reader(spans[0], way) as reader:
                while spans:
                    self._receive(way, reader, spans[0], is_last=len(spans) == 1)
                    self._finished(spans.popleft())
        except SourceFailed as failure:
            self._on_source_failure(source, failure.error)
        except SourceStalled as stall:
            logger.info("source %s stalls; others are asked instead", source)
            self._board.rest(source, stall.read)
        finally:
            self._board.give_back(source, spans)

    def _finished(self, span: Span) -> None:
        self._board.finished(span)
        self._target.events(SpanReceived(span.length))

    def _too_late(self) -> ReadTimeoutError:
        sources = ", ".join(map(str, self._board.sources())) or "any source"
        return ReadTimeoutError(
            f"{self._target.deadline.budget_seconds:g} s were not enough to receive from "
            f"source {sources} ({self.progress()})",
            hint=SLOW_HINT,
        )

    def check_going(self) -> None:
        """Raise when there is no point in waiting any longer."""
        if self._stop.is_set():
            raise WorkStopped
        if self._target.deadline.passed:
            raise self._too_late()

    def wait(self, seconds: float) -> None:
        """Wait, but not when the work was stopped."""
        self._stop.wait(min(seconds, self._target.deadline.remaining()))

    def _receive(self, way: _ReadContext, reader: Reader, span: Span, *, is_last: bool) -> None:
        wait_seconds = self._target.rate.reserve(span.length, self.remaining())
        self.wait(self.remaining() if wait_seconds is None else wait_seconds)
        self.check_going()
        with self._buffer() as (buffer, pending):
            way.span = span
            data = buffer.view[: span.length]
            try:
                carried = self._read_verified(way, reader, buffer, pending, is_last=is_last)
            except (RegistrationError, TransportUnavailableError):
                raise  # this node's fault
            except MxArtifactsError as error:
                if self._stop.is_set():
                    raise WorkStopped from error
                if self._target.deadline.passed:  # and with it the call's patience
                    raise self._too_late() from error
                raise SourceFailed(error) from error
            self._target.rate.give_back(span.length - carried)
            self.check_going()
            self._target.receiver.write(span, data)

    def _read_verified(
        self,
        way: _ReadContext,
        reader: Reader,
        buffer: PooledBuffer,
        pending: list[PendingRead],
        *,
        is_last: bool,
    ) -> int:
        """Return how many bytes were carried."""
        span, source = way.span, way.source
        corrupt = carried = 0
        while True:
            self.check_going()
            source.client.check_attached()
            started = SYSTEM_CLOCK.monotonic()
            carried += reader.read(span, buffer, pending)
            self._board.read(source, span, SYSTEM_CLOCK.monotonic() - started)
            held = reader.release() if is_last else True
            damage = span.damage(buffer.view[: span.length])
            if not damage:
                return carried
            # Under a lease that ran out, other bytes are to be expected: that is no damage.
            held = reader.still_holds() and held
            corrupt += held
            logger.warning("%s: %s (lease held: %s)", source, damage, held)
            if corrupt > MAX_CORRUPT_READS:
                raise ChunkChecksumError(
                    f"source {source}: bytes arrived {corrupt} times with a wrong checksum, at "
                    f"last {damage}"
                )

    @contextlib.contextmanager
    def _buffer(self) -> Iterator[tuple[PooledBuffer, list[PendingRead]]]:
        """Lend a buffer and a list for the reads into it, which decide when it is free again."""
        pool, buffer = self._target.pool, self._free_buffer()
        pending: list[PendingRead] = []
        try:
            yield buffer, pending
        finally:
            running = [read for read in pending if not read.done()]
            if running:
                pool.quarantine(buffer, lambda: all(read.done() for read in running))
            else:
                pool.release(buffer)

    def _free_buffer(self) -> PooledBuffer:
        """Wait for a buffer: there is one for each thread, unless reads that stalled hold some."""
        while True:
            try:
                return self._target.pool.acquire(min(READ_SLICE_SECONDS, self.remaining()))
            except NoFreeSlotError:
                self.check_going()

    def is_stalling(self, source: Source, span: Span, seconds: float) -> bool:
        """Tell whether a read that takes so long should be left to another source."""
        if not self._board.asks(source):
            return True
        usual = self._board.usual_seconds(span.length)
        return seconds > max(MIN_STALL_SECONDS, STALL_FACTOR * usual) and self._board.has_other(
            source, span
        )

    def jitter(self) -> float:
        """Return a factor by which targets that were refused together come back apart."""
        return self._target.rng.uniform(0.5, 1.0)

    def remaining(self) -> float:
        """Return the seconds that are left."""
        return self._target.deadline.remaining()


class SourceStalled(Exception):
    """A source is too slow to wait for, since another one can do it; `read` is under way still."""

    def __init__(self, read: PendingRead | None) -> None:
        super().__init__()
        self.read = read


class _ReadContext:
    """The way from one source, as one thread goes it: decides how long to wait for it."""

    def __init__(self, pipeline: Pipeline, source: Source) -> None:
        self._pipeline = pipeline
        self._waited_seconds = 0.0
        self.source = source
        self._span: Span | None = None

    @property
    def span(self) -> Span:
        assert self._span is not None, "a span is under way"
        return self._span

    @span.setter
    def span(self, span: Span) -> None:
        self._span, self._waited_seconds = span, 0.0

    def remaining(self) -> float:
        """Return how long a call to the source may last: short, where another could be asked."""
        left = self._pipeline.remaining()
        if self._pipeline.is_stalling(self.source, self.span, float("inf")):
            return min(left, 2 * MIN_STALL_SECONDS)
        return left

    def pause(self, seconds: float, waited_seconds: float = 0.0) -> None:
        """Wait for a source that is busy, or raise."""
        seconds *= self._pipeline.jitter()
        self._pipeline.wait(seconds)
        self._check(waited_seconds + seconds)

    def waits(self) -> None:
        """Let others work meanwhile."""
        self._pipeline.spread()

    def finish(self, read: PendingRead) -> None:
        """Wait for the bytes, or raise."""
        stalled = 0
        if not read.done():
            self.waits()
        while True:
            try:
                read.wait(min(READ_SLICE_SECONDS, self._pipeline.remaining()))
                return
            except ReadTimeoutError:
                self._check(READ_SLICE_SECONDS, read)
            stalled += 1
            if stalled % STALLED_SLICES == 0:
                self.source.check_answers()

    def _check(self, waited_seconds: float, read: PendingRead | None = None) -> None:
        self._pipeline.check_going()
        self.source.client.check_attached()
        self._waited_seconds += waited_seconds
        if self._pipeline.is_stalling(self.source, self.span, self._waited_seconds):
            raise SourceStalled(read)
