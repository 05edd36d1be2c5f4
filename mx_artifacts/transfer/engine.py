"""Moves extents from several sources into a sink. It does not know artifacts (`artifact/` does)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

from mx_artifacts.compression import AUTO
from mx_artifacts.memory.pool import BufferPool
from mx_artifacts.observability.catalogue import TransferFinished, TransferStarted
from mx_artifacts.observability.events import EventSink
from mx_artifacts.runtime.clock import Clock
from mx_artifacts.runtime.deadline import Deadline
from mx_artifacts.runtime.rate_limit import RateLimit
from mx_artifacts.transfer.base import Connect, E, ReadableSource, Sink, SourceAddress
from mx_artifacts.transfer.candidates import Candidates
from mx_artifacts.transfer.pipeline import MAX_CORRUPT_READS, Pipeline, TransferContext
from mx_artifacts.transfer.read_scheduler import ReadScheduler
from mx_artifacts.transfer.source_failures import SourceFailures
from mx_artifacts.transfer.source_manager import FindSources, SourceManager, nobody
from mx_artifacts.transfer.state import TransferState
from mx_artifacts.transfer.timing import DEFAULT_TIMING, TransferTiming
from mx_artifacts.transport.base import Transport


@dataclass(frozen=True)
class TransferLimits:
    """What a transfer may cost.

    Attributes:
        timeout_seconds: for all of it.
        max_inflight: maximum of extents that are read at once, each by one thread; those without a
            destination of the sink's in a registered buffer of their own.
        source_wait_seconds: how long to look for another source when none is left.
        serves_on: this target serves what it reads to others from its first bytes on. It reads in
            random order, so that they have different parts, and one extent at a time from each.
        max_bytes_per_second: from all sources together, as carried; None: no limit.
        compression: "auto": where a link is slower than a source compresses; "zstd", "none".
        timing: how long to wait for what.
        max_corrupt_reads: damaged reads of one extent that are repeated.
    """

    timeout_seconds: float
    max_inflight: int
    source_wait_seconds: float = 0.0
    serves_on: bool = False
    max_bytes_per_second: float | None = None
    compression: str = AUTO
    timing: TransferTiming = DEFAULT_TIMING
    max_corrupt_reads: int = MAX_CORRUPT_READS

    def __post_init__(self) -> None:
        if self.max_inflight <= 0:
            raise ValueError(
                f"{self.max_inflight} extents in flight are not possible; at least 1 is needed"
            )


@dataclass(frozen=True)
class SourceSupply(Generic[E]):
    """The sources of a transfer.

    Attributes:
        connect: returns the source at an address, to be opened.
        first: a source that is connected already; None: all are in `others`.
        others: further addresses.
        find: returns addresses that serve by now; asked at times.
    """

    connect: Connect[E]
    first: ReadableSource[E] | None = None
    others: Sequence[SourceAddress] = ()
    find: FindSources = nobody


def receive(
    extents: Sequence[E],
    supply: SourceSupply[E],
    sink: Sink[E],
    transport: Transport,
    limits: TransferLimits,
    deadline: Deadline,
    failures: SourceFailures,
    *,
    events: EventSink,
    clock: Clock,
    rng: random.Random,
) -> dict[str, int]:
    """Read all `extents` into `sink`; return how many bytes each endpoint delivered.

    Several sources are read from at once; one that fails is left, and what it owed is read from
    others. Blocks until `deadline`, and some seconds more to end threads. After it `failures` has
    the last error of each source that did not recover.

    Raises:
        MxArtifactsError: no source is left (`SourceFailures.as_error`), or the sink raised it.
        ReadTimeoutError: the deadline has passed.
        RegistrationError: there is no memory for buffers here.
    """
    total_bytes = sum(extent.length for extent in extents)
    events(TransferStarted(total_bytes, len(extents)))
    delivered: dict[str, int] = {}
    if extents:
        timing = limits.timing
        scheduler = ReadScheduler(
            extents,
            clock,
            max_reads_per_source=1 if limits.serves_on else None,
            timing=timing,
        )
        state = TransferState(scheduler, Candidates(clock, timing), failures, sink)
        pool = _pool(transport, limits, extents, sink)
        rate = RateLimit(limits.max_bytes_per_second, clock)
        context = TransferContext(
            state, sink, pool, deadline, rate, rng, clock, timing, events, limits.max_corrupt_reads
        )
        pipeline = Pipeline(context, min(limits.max_inflight, len(extents)))
        manager = SourceManager(
            state,
            supply.connect,
            supply.find,
            clock,
            timing,
            serves_on=limits.serves_on,
            patience_seconds=limits.source_wait_seconds,
        )
        try:
            manager.start(supply.first, supply.others)
            pipeline.run()
        finally:
            state.stop()
            if not pipeline.close(timing.stop):
                manager.hang_up()  # fails the calls in which threads wait
                pipeline.close(timing.stop)
            manager.close()
            if pool is not None:
                pool.close()  # buffers that a read may still reach stay mapped
        delivered = scheduler.delivered()
        failures.forget(source.address for source in scheduler.sources())
    events(TransferFinished(total_bytes, len(extents)))
    return delivered


def _pool(
    transport: Transport, limits: TransferLimits, extents: Sequence[E], sink: Sink[E]
) -> BufferPool | None:
    """Return buffers for the extents that have no destination; None if all have one."""
    copied = [extent for extent in extents if sink.destination_of(extent) is None]
    if not copied:
        return None
    longest = max(extent.length for extent in copied)
    count = min(limits.max_inflight, len(copied))
    # A source that stalls can hold up as many reads as there are, and once more after a rest.
    return BufferPool(transport, count, longest, spares=2 * count)
