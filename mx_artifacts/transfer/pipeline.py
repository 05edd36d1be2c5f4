"""Reads the extents of a transfer with several threads, without a barrier between them.

The steps for an extent: get a destination, read from a source, verify, write. If a source fails,
delivers wrong bytes or stalls, its extents are read from another source.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic

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
from mx_artifacts.runtime.clock import Clock
from mx_artifacts.runtime.deadline import SLOW_HINT, Deadline
from mx_artifacts.runtime.rate_limit import RateLimit
from mx_artifacts.runtime.threads import WorkStopped, thread_count
from mx_artifacts.transfer.base import Destination, E, ReadableSource, Reader, Sink
from mx_artifacts.transfer.state import TransferState
from mx_artifacts.transfer.timing import TransferTiming
from mx_artifacts.transport.base import PendingRead

logger = logging.getLogger(__name__)

_ENDING_POLL_SECONDS = 0.02
"""Interval in which reads that ended badly are asked whether they still write."""
MAX_CORRUPT_READS = 2
"""Maximum of damaged reads of one extent that are repeated; after one more the source is broken."""


@dataclass(frozen=True)
class TransferContext(Generic[E]):
    """What the threads of a pipeline work with; the caller owns all of it.

    `pool` has buffers for extents without a destination of the sink's; None if there are none.
    """

    state: TransferState[E]
    sink: Sink[E]
    pool: BufferPool | None
    deadline: Deadline
    rate: RateLimit
    rng: random.Random
    clock: Clock
    timing: TransferTiming
    events: EventSink
    max_corrupt_reads: int = MAX_CORRUPT_READS


class Pipeline(Generic[E]):
    """Receives all extents with up to `threads` threads. Used once: `run`, then `close`."""

    def __init__(self, context: TransferContext[E], threads: int) -> None:
        self._context = context
        self._state = context.state
        self._scheduler = context.state.scheduler
        self._lock = threading.Lock()
        self._running = 0
        self._threads = [
            threading.Thread(target=self._work, name=f"mx-transfer-{n}", daemon=True)
            for n in range(threads)
        ]
        self._waiting = self._threads

    def run(self) -> None:
        """Return when every extent is written.

        Raises:
            ReadTimeoutError: the deadline has passed.
            BaseException: the error that ended the transfer (`TransferState.fail`).
        """
        context = self._context
        self._start(len(self._threads) if context.sink.waits else thread_count())
        left_seconds = context.deadline.remaining() + context.timing.overtime
        if not self._state.wait_outcome(left_seconds):  # a hole must never look like a file
            raise self._too_late()

    def start_all_threads(self) -> None:
        """Start the remaining threads, since one waits. Any thread.

        On one host the thread that posts a read copies it: then more threads than cores only get
        into each other's way, and their buffers out of the caches (docs/performance.md).
        """
        if self._waiting:
            self._start(len(self._threads))

    def _start(self, count: int) -> None:
        with self._lock:
            starting, self._waiting = self._waiting[:count], self._waiting[count:]
            self._running += len(starting)
        for thread in starting:
            thread.start()

    def close(self, timeout_seconds: float) -> bool:
        """Stop the threads; return whether all have ended in time."""
        self._state.stop()
        wait = Deadline(timeout_seconds, self._context.clock)
        for thread in self._threads:
            if thread.is_alive():
                thread.join(wait.remaining())
        return not any(thread.is_alive() for thread in self._threads)

    # --- one thread ------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while not (self._scheduler.is_over or self._state.is_stopped):
                work = self._scheduler.take(self._context.timing.read_slice)
                if work is not None:
                    self._take_from(*work)
                elif self._context.deadline.passed:
                    raise self._too_late()
        except WorkStopped:
            pass
        except BaseException as error:
            self._state.fail(error)
        finally:
            with self._lock:
                self._running -= 1
                if self._running == 0:
                    self._state.readers_ended()

    def _take_from(self, source: ReadableSource[E], extents: deque[E]) -> None:
        """Receive `extents` from `source` until one fails; give the rest back."""
        wait = _ReadWait(self, source)
        try:
            with source.reader(extents[0], wait) as reader:
                while extents:
                    self._receive(wait, reader, extents[0], is_last=len(extents) == 1)
                    self._finished(extents.popleft())
        except _SourceFailed as failure:
            self._state.source_failed(source, failure.error)
        except _SourceStalled as stall:
            logger.info("source %s stalls; reading from others", source)
            self._scheduler.back_off(source, stall.read)
        finally:
            self._scheduler.give_back(source, extents)

    def _finished(self, extent: E) -> None:
        self._scheduler.finished(extent)
        self._context.events(SpanReceived(extent.length))

    def _too_late(self) -> ReadTimeoutError:
        sources = ", ".join(map(str, self._scheduler.sources())) or "any source"
        return ReadTimeoutError(
            f"{self._context.deadline.budget_seconds:g} s were not enough to receive from "
            f"source {sources} ({self._state.progress()})",
            hint=SLOW_HINT,
        )

    def check_going(self) -> None:
        """Raise if the transfer has ended or its deadline has passed."""
        if self._state.is_stopped:
            raise WorkStopped
        if self._context.deadline.passed:
            raise self._too_late()

    def pause(self, seconds: float) -> None:
        """Wait for `seconds`, but not beyond the deadline or the transfer's end."""
        self._state.wait_stopped(min(seconds, self.remaining()))

    def remaining(self) -> float:
        """Return the time that is left [s]."""
        return self._context.deadline.remaining()

    def _receive(self, wait: _ReadWait[E], reader: Reader[E], extent: E, *, is_last: bool) -> None:
        rate = self._context.rate
        wait_seconds = rate.reserve(extent.length, self.remaining())
        self.pause(self.remaining() if wait_seconds is None else wait_seconds)
        self.check_going()
        with self._destination(extent, wait) as (into, pending):
            try:
                carried = self._read_verified(wait, reader, into, pending, is_last=is_last)
            except (RegistrationError, TransportUnavailableError):
                raise  # this node's fault
            except MxArtifactsError as error:
                if self._state.is_stopped:
                    raise WorkStopped from error
                if self._context.deadline.passed:  # so the call's time was cut short
                    raise self._too_late() from error
                raise _SourceFailed(error) from error
            rate.give_back(extent.length - carried)
            self.check_going()
            self._context.sink.write(extent, into)

    def _read_verified(
        self,
        wait: _ReadWait[E],
        reader: Reader[E],
        into: Destination,
        pending: list[PendingRead],
        *,
        is_last: bool,
    ) -> int:
        """Return how many bytes were carried."""
        extent, source, clock = wait.extent, wait.source, self._context.clock
        corrupt = carried = 0
        while True:
            self.check_going()
            source.check_session()
            started = clock.monotonic()
            carried += reader.read(extent, into, pending)
            self._scheduler.record_read(source, extent, clock.monotonic() - started)
            held = reader.release() if is_last else True
            damage = self._context.sink.damage(extent, into)
            if not damage:
                return carried
            # Under a lease that has expired, other bytes are to be expected: that is no damage.
            held = reader.still_holds() and held
            corrupt += held
            logger.warning("%s: %s (lease held: %s)", source, damage, held)
            if corrupt > self._context.max_corrupt_reads:
                answer = source.report_damage(extent)
                raise ChunkChecksumError(
                    f"source {source}: bytes arrived {corrupt} times with a wrong checksum, the "
                    f"last time {damage}{answer}"
                )

    # --- destinations ----------------------------------------------------------------------------

    @contextlib.contextmanager
    def _destination(
        self, extent: E, wait: _ReadWait[E]
    ) -> Iterator[tuple[Destination, list[PendingRead]]]:
        """Lend memory for an extent, and a list for the reads into it.

        The memory is used again only when all these reads have ended.
        """
        into = self._context.sink.destination_of(extent)
        pending: list[PendingRead] = []
        wait.begin(extent, is_direct=into is not None)
        if into is None:
            with self._buffer(extent.length, pending) as into:
                yield into, pending
            return
        try:
            yield into, pending
        finally:
            self._await_ended(pending)

    def _await_ended(self, pending: list[PendingRead]) -> None:
        """Wait for reads into a destination, so that a repeated read is not overwritten by them."""
        running = [read for read in pending if not read.done()]
        wait = Deadline(self.remaining() + self._context.timing.overtime, self._context.clock)
        while running and not wait.passed and not self._state.is_stopped:
            self._state.wait_stopped(min(_ENDING_POLL_SECONDS, wait.remaining()))
            running = [read for read in running if not read.done()]
        if running:
            self._context.sink.keep_until(lambda: all(read.done() for read in running))
            raise ReadTimeoutError(
                f"{len(running)} reads into memory that belongs to the sink did not end",
                hint=SLOW_HINT,
            )

    @contextlib.contextmanager
    def _buffer(self, length: int, pending: list[PendingRead]) -> Iterator[Destination]:
        pool = self._context.pool
        assert pool is not None, "there is a pool if an extent has no destination"
        buffer = self._free_buffer(pool)
        try:
            yield Destination(buffer.region, 0, buffer.view[:length])
        finally:
            running = [read for read in pending if not read.done()]
            if running:
                pool.quarantine(buffer, lambda: all(read.done() for read in running))
            else:
                pool.release(buffer)

    def _free_buffer(self, pool: BufferPool) -> PooledBuffer:
        """Wait for a buffer: there is one for each thread, unless stalled reads hold some."""
        while True:
            try:
                return pool.acquire(min(self._context.timing.read_slice, self.remaining()))
            except NoFreeSlotError:
                self.check_going()

    # --- waiting ---------------------------------------------------------------------------------

    def is_stalling(self, source: ReadableSource[E], extent: E, seconds: float) -> bool:
        """Return whether a read that takes `seconds` should be left to another source."""
        if not self._scheduler.has_source(source):
            return True
        timing = self._context.timing
        usual_seconds = self._scheduler.usual_seconds(extent.length)
        limit_seconds = max(timing.min_stall, timing.stall_factor * usual_seconds)
        return seconds > limit_seconds and self._scheduler.has_other(source, extent)

    def jittered(self, seconds: float) -> float:
        """Return a part of `seconds`, so that targets refused together come back apart."""
        return seconds * self._context.rng.uniform(0.5, 1.0)

    @property
    def timing(self) -> TransferTiming:
        return self._context.timing


class _SourceFailed(Exception):
    """Called when a source failed with `error`; the transfer may continue with others."""

    def __init__(self, error: MxArtifactsError) -> None:
        super().__init__(str(error))
        self.error = error


class _SourceStalled(Exception):
    """A source is too slow to wait for, since another one has the extent; `read` still runs."""

    def __init__(self, read: PendingRead | None) -> None:
        super().__init__()
        self.read = read


class _ReadWait(Generic[E]):
    """The `WaitPolicy` of one thread that reads from one source."""

    def __init__(self, pipeline: Pipeline[E], source: ReadableSource[E]) -> None:
        self._pipeline = pipeline
        self._waited_seconds = 0.0
        self._is_direct = False
        self.source = source
        self._extent: E | None = None

    @property
    def extent(self) -> E:
        assert self._extent is not None, "an extent is being read"
        return self._extent

    def begin(self, extent: E, *, is_direct: bool) -> None:
        """Wait for `extent` from now on; `is_direct`: it is read into memory of the sink's."""
        self._extent, self._is_direct, self._waited_seconds = extent, is_direct, 0.0

    def remaining(self) -> float:
        left = self._pipeline.remaining()
        if self._pipeline.is_stalling(self.source, self.extent, float("inf")):
            return min(left, 2 * self._pipeline.timing.min_stall)
        return left

    def pause(self, seconds: float, waited_seconds: float = 0.0) -> None:
        seconds = self._pipeline.jittered(seconds)
        self._pipeline.pause(seconds)
        self._check(waited_seconds + seconds)

    def waits(self) -> None:
        self._pipeline.start_all_threads()

    def finish(self, read: PendingRead) -> None:
        slice_seconds, stalled_seconds = self._pipeline.timing.read_slice, 0.0
        if not read.done():
            self.waits()
        while True:
            try:
                read.wait(min(slice_seconds, self._pipeline.remaining()))
                return
            except ReadTimeoutError:
                self._check(slice_seconds, read)
            stalled_seconds += slice_seconds
            if stalled_seconds >= self._pipeline.timing.stalled_read:
                stalled_seconds = 0.0
                self.source.check_answers()

    def _check(self, waited_seconds: float, read: PendingRead | None = None) -> None:
        self._pipeline.check_going()
        self.source.check_session()
        self._waited_seconds += waited_seconds
        if read is not None and self._is_direct:
            return  # another source could only read into the same memory
        if self._pipeline.is_stalling(self.source, self.extent, self._waited_seconds):
            raise _SourceStalled(read)
