"""Fetches one artifact: its tables from one source, its bytes from all sources that deliver."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from mx_artifacts.bundle.spans import Span
from mx_artifacts.client.worker import WorkerClient
from mx_artifacts.core.manifest import ArtifactManifest
from mx_artifacts.errors import MxArtifactsError
from mx_artifacts.observability.events import EventSink, ignore_events
from mx_artifacts.runtime.clock import SYSTEM_CLOCK, Clock
from mx_artifacts.runtime.deadline import Deadline
from mx_artifacts.transfer.artifact.artifact_tables import find_tables
from mx_artifacts.transfer.artifact.receiver import Receiver
from mx_artifacts.transfer.artifact.source import Source
from mx_artifacts.transfer.base import Destination, SourceAddress
from mx_artifacts.transfer.engine import SourceSupply, TransferLimits, receive
from mx_artifacts.transfer.source_failures import SourceFailures
from mx_artifacts.transfer.source_manager import FindSources, nobody
from mx_artifacts.transport.base import Transport


@dataclass(frozen=True)
class TransferResult:
    """Result of a transfer.

    Attributes:
        first: the source that gave the tables.
        delivered: bytes by endpoint; damaged ones count too.
        left_behind: the last error of each source that did not recover, by endpoint.
        transports: the transport by which each endpoint was read last.
    """

    manifest: ArtifactManifest
    first: SourceAddress
    transferred_bytes: int
    delivered: Mapping[str, int] = field(default_factory=dict)
    left_behind: Mapping[str, MxArtifactsError] = field(default_factory=dict)
    transports: Mapping[str, str] = field(default_factory=dict)


class _ReceiverSink:
    """A receiver as the sink of a transfer: every span comes to it in a buffer."""

    def __init__(self, receiver: Receiver) -> None:
        self.stop = receiver.stop
        self._receiver = receiver

    @property
    def waits(self) -> bool:
        return self._receiver.waits

    def destination_of(self, extent: Span) -> None:
        return None

    def damage(self, extent: Span, stored: Destination) -> str:
        return extent.damage(stored.view)

    def write(self, extent: Span, stored: Destination) -> None:
        self._receiver.write(extent, stored.view)

    def keep_until(self, is_done: Callable[[], bool]) -> None:
        raise AssertionError("a receiver has no memory of its own to read into")


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
    """Receive an artifact from `sources`; some of them may fail.

    No bytes are requested before header and chunk table hash to `artifact_id` and `receiver` has
    agreed. (An empty `artifact_id` means the only artifact of the first source; then the id is what
    that source says.) Several sources are read from at once; from time to time, `find_more` is
    called for further ones. Blocks for `limits.timeout_seconds` at most, and some seconds more to
    end threads. Registers `max_inflight` buffers of 4 MiB (of one chunk, if no source has a member
    index), and runs at most as many threads (`Pipeline`).

    Events: TransferStarted, SpanReceived from any thread, SourceFailed, TransferFinished.

    Raises:
        TransferFailedError: all of several sources failed; it lists each and its cause. If there
            was only one source, its error:
        ManifestInvalidError, ArtifactIdMismatchError, ChunkChecksumError: its data is wrong.
        NoFreeSlotError: it was always busy. PeerLostError, ReadTimeoutError, TransportError,
        RemoteError, RecordNotFoundError
        RegistrationError: no memory for the buffers here.
        MxArtifactsError: `receiver` raised it.
    """
    rng = rng or random.Random()  # noqa: S311 - jitter and order, not a secret
    deadline = Deadline(limits.timeout_seconds, clock)
    failures = SourceFailures(events)
    made: list[Source] = []

    def new_source(
        address: SourceAddress, manifest: ArtifactManifest, client: WorkerClient
    ) -> Source:
        source = Source(
            address,
            manifest,
            transport,
            client,
            clock,
            compression=limits.compression,
            max_bytes_per_second=limits.max_bytes_per_second,
        )
        made.append(source)
        return source

    tables = find_tables(
        sources,
        artifact_id,
        deadline,
        new_source,
        failures.add,
        limits.timing,
        serves_on=limits.serves_on,
    )
    if tables is None:
        raise failures.as_error()
    manifest = tables.manifest

    def connect(address: SourceAddress) -> Source:
        client = WorkerClient(address.endpoint, timeout_seconds=limits.timing.call)
        return new_source(address, manifest, client)

    with closing(tables.source):
        spans = list(receiver.begin(manifest, tables.maps))
        if limits.serves_on and tables.maps:
            rng.shuffle(spans)
        others = [address for address in sources if address not in failures.addresses]
        delivered = receive(
            spans,
            SourceSupply(connect, tables.source, others, find_more),
            _ReceiverSink(receiver),
            transport,
            limits,
            deadline,
            failures,
            events=events,
            clock=clock,
            rng=rng,
        )
        receiver.finish()
    total_bytes = sum(span.length for span in spans)
    return TransferResult(
        manifest,
        tables.source.address,
        total_bytes,
        delivered,
        failures.by_endpoint,
        {str(source): source.transport_name for source in made if str(source) in delivered},
    )
