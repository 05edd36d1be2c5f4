"""Receives one artifact from its sources: plan, then pipeline. All or nothing."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from mx_artifacts.bundle.spans import Span
from mx_artifacts.client.worker import WorkerClient
from mx_artifacts.compression import AUTO
from mx_artifacts.core.manifest import ArtifactManifest
from mx_artifacts.errors import (
    LeaseError,
    MxArtifactsError,
    TransferFailedError,
    TransportError,
)
from mx_artifacts.memory.pool import BufferPool
from mx_artifacts.observability.catalogue import SourceFailed, TransferFinished, TransferStarted
from mx_artifacts.observability.events import EventSink, ignore_events
from mx_artifacts.runtime.clock import SYSTEM_CLOCK, Clock
from mx_artifacts.runtime.deadline import Deadline
from mx_artifacts.runtime.rate_limit import RateLimit
from mx_artifacts.transfer.artifact_tables import make_plan
from mx_artifacts.transfer.pipeline import Pipeline, Target
from mx_artifacts.transfer.read_scheduler import ReadScheduler
from mx_artifacts.transfer.receiver import Receiver
from mx_artifacts.transfer.source import Source, SourceAddress
from mx_artifacts.transfer.source_manager import FindSources, SourceManager, Verdicts, nobody
from mx_artifacts.transport.base import Transport

STOP_TIMEOUT_SECONDS = 3.0
"""How long a failed transfer waits for its threads to give leases back, before it hangs up."""


@dataclass(frozen=True)
class TransferLimits:
    """What a transfer may cost.

    Attributes:
        timeout_seconds: for all of it.
        max_inflight: spans that are read at once, at most; each in a registered buffer, by one
            thread.
        source_wait_seconds: how long to look for another source when none is left.
        serves_on: this target serves what it reads to others from its first bytes on. It reads in
            random order, so that they have different parts, and one span at a time from each.
        max_bytes_per_second: from all sources together, as carried; None: any number.
        compression: "auto": where a link is slower than a source compresses; "zstd", "none".
    """

    timeout_seconds: float
    max_inflight: int
    source_wait_seconds: float = 0.0
    serves_on: bool = False
    max_bytes_per_second: float | None = None
    compression: str = AUTO


@dataclass(frozen=True)
class TransferResult:
    """What came, from whom the tables were, how many bytes were from whom (by endpoint), and which
    sources failed by what and did not recover."""

    manifest: ArtifactManifest
    first: SourceAddress
    transferred_bytes: int
    delivered: Mapping[str, int] = field(default_factory=dict)
    left_behind: Mapping[str, MxArtifactsError] = field(default_factory=dict)


def fetch_artifact(
    sources: Sequence[SourceAddress],
    artifact_id: str,
    transport: Transport,
    receiver: Receiver,
    limits: TransferLimits,
    *,
    find_more: FindSources = nobody,
    events: EventSink = ignore_events,
    clock: Clock = SYSTEM_CLOCK,
    rng: random.Random | None = None,
) -> TransferResult:
    """Receive an artifact from those of `sources` that deliver.

    Nothing is asked for before header and chunk table hash to `artifact_id` (empty: the only one
    of the first source, whose id is then that source's word), and `receiver` agrees. Several
    sources are read from at once; `find_more` is asked for further ones now and then. Blocks for
    `limits.timeout_seconds` at most, and some seconds more to end threads. Registers
    `max_inflight` buffers of 4 MiB (of a chunk, where no source tells what is in it), and runs at
    most as many threads (`Pipeline`).

    Events: transfer.started (total_bytes, chunk_count), transfer.chunk (length_bytes) from any
    thread, transfer.source_failed (endpoint, error), transfer.finished (total_bytes).

    Raises:
        TransferFailedError: all of several sources failed; it lists each and its cause. Where
            there was one, what it failed by:
        ManifestInvalidError, ArtifactIdMismatchError, ChunkChecksumError: its data is wrong.
        NoFreeSlotError: it was busy all the time.
        PeerLostError, ReadTimeoutError, TransportError, RemoteError, RecordNotFoundError
        RegistrationError: no memory for the buffers here.
        MxArtifactsError: whatever `receiver` raises.
    """
    if limits.max_inflight <= 0:
        raise ValueError(f"{limits.max_inflight} spans in flight make no sense")
    rng = rng or random.Random()  # noqa: S311 - jitter and order, not a secret
    deadline = Deadline(limits.timeout_seconds, clock)
    failures = _Failures(events)

    def new_source(
        address: SourceAddress, manifest: ArtifactManifest, client: WorkerClient
    ) -> Source:
        return Source(
            address,
            manifest,
            transport,
            client,
            compression=limits.compression,
            max_bytes_per_second=limits.max_bytes_per_second,
        )

    plan = make_plan(
        sources,
        artifact_id,
        deadline,
        new_source,
        failures.add,
        serves_on=limits.serves_on,
    )
    if plan is None:
        raise failures.as_error()
    with closing(plan.source):
        spans = list(receiver.begin(plan.manifest, plan.maps))
        if limits.serves_on and plan.maps:
            rng.shuffle(spans)
        total_bytes = sum(span.length for span in spans)
        events(TransferStarted(total_bytes, len(spans)))
        delivered: Mapping[str, int] = {}
        if spans:
            others = [s for s in sources if s not in failures.addresses]
            board = ReadScheduler(
                spans,
                plan.manifest.chunk_size,
                clock,
                max_reads_per_source=1 if limits.serves_on else None,
            )
            pool = _pool(transport, limits, spans)
            rate = RateLimit(limits.max_bytes_per_second, clock)
            target = Target(board, pool, receiver, deadline, rate, rng, events)
            pipeline = Pipeline(target, min(limits.max_inflight, len(spans)))
            scout = SourceManager(
                board,
                lambda address, client: new_source(address, plan.manifest, client),
                clock,
                Verdicts(
                    failures.add,
                    lambda why: pipeline.fail(failures.as_error(pipeline.progress() + why)),
                    pipeline.fail,
                ),
                serves_on=limits.serves_on,
                find=find_more,
                patience_seconds=limits.source_wait_seconds,
            )
            _run(pipeline, scout, plan.source, others, receiver, pool)
            delivered = board.delivered()
            failures.forget_those_of(board.sources())
        receiver.finish()
    events(TransferFinished(total_bytes, len(spans)))
    return TransferResult(
        plan.manifest, plan.source.address, total_bytes, delivered, failures.by_endpoint
    )


def _pool(transport: Transport, limits: TransferLimits, spans: Sequence[Span]) -> BufferPool:
    longest = max(span.length for span in spans)
    count = min(limits.max_inflight, len(spans))
    # A source that stalls can hold up as many reads as there are, and once more after a rest.
    return BufferPool(transport, count, longest, spares=2 * count)


def _run(
    pipeline: Pipeline,
    scout: SourceManager,
    first: Source,
    others: Sequence[SourceAddress],
    receiver: Receiver,
    pool: BufferPool,
) -> None:
    try:
        scout.start(first, others)
        pipeline.run(scout.failed)
    finally:
        receiver.stop()
        scout.stop()
        if not pipeline.close(STOP_TIMEOUT_SECONDS):
            scout.hang_up()  # fails the calls in which threads wait
            pipeline.close(STOP_TIMEOUT_SECONDS)
        scout.close()
        pool.close()  # buffers that a read may still reach stay mapped


class _Failures:
    """Which sources failed by what. Any thread."""

    def __init__(self, events: EventSink) -> None:
        self.addresses: set[SourceAddress] = set()
        self.by_endpoint: dict[str, MxArtifactsError] = {}
        self._events = events

    def add(self, address: SourceAddress, error: MxArtifactsError) -> None:
        """Note, and tell, a failure; not again that a source which was lost is still lost."""
        known = self.by_endpoint.get(address.endpoint)
        self.addresses.add(address)
        self.by_endpoint[address.endpoint] = error
        if type(known) is not type(error):
            self._events(SourceFailed(address.endpoint, error))

    def forget_those_of(self, sources: Iterable[Source]) -> None:
        """Take back what sources failed by that are well again."""
        for source in sources:
            self.by_endpoint.pop(source.address.endpoint, None)

    def as_error(self, progress: str = "") -> MxArtifactsError:
        """Return what to raise when no source is left: of one source, its own error."""
        attempts = list(self.by_endpoint.items())
        reached = f" ({progress})" if progress else ""
        if len(attempts) == 1:
            ((endpoint, error),) = attempts
            if not isinstance(error, (TransportError, LeaseError)):
                return error
            where = "" if endpoint in str(error) else f"source {endpoint}: "
            return type(error)(f"{where}{error}{reached}", hint=error.hint())
        if not attempts:
            return TransferFailedError(f"no source has the rest{reached}", attempts=attempts)
        listed = "; ".join(f"{endpoint}: {cause}" for endpoint, cause in attempts)
        return TransferFailedError(f"no source delivered{reached}: {listed}", attempts=attempts)
