"""One source of an artifact, as a target reads it: as a whole from memory, or chunk by chunk.

If the source leases the artifact as a whole, spans are read from its memory. Else the chunk of a
span is leased while its spans are read.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import TypeVar

from mx_artifacts.bundle.spans import Span
from mx_artifacts.client.extension import BlockLease, WholeLease
from mx_artifacts.client.worker import ChunkLease, WorkerClient
from mx_artifacts.compression import NONE, encodings
from mx_artifacts.core.manifest import ArtifactManifest, ArtifactRef, ManifestChunk
from mx_artifacts.core.ranges import Ranges
from mx_artifacts.errors import (
    LeaseExpiredError,
    ManifestInvalidError,
    MxArtifactsError,
    NoFreeSlotError,
    PeerLostError,
    RecordNotFoundError,
)
from mx_artifacts.runtime.clock import SYSTEM_CLOCK, Clock
from mx_artifacts.transfer.artifact.compression_policy import CompressionPolicy, LinkMeter
from mx_artifacts.transfer.artifact.readers import BlockReader, ChunkReader, WholeReader
from mx_artifacts.transfer.base import Destination, Reader, SourceAddress
from mx_artifacts.transfer.wait_policy import WaitPolicy
from mx_artifacts.transport.base import MAX_ADDRESS, Peer, PendingRead, RemoteRange, Transport

T = TypeVar("T")
logger = logging.getLogger(__name__)

FIRST_BACKOFF_SECONDS = 0.05
DAMAGE_REPORT_SECONDS = 5.0
"""Maximum time for a source to read a damaged chunk again [s]; only one thread waits for it."""
MAX_BACKOFF_SECONDS = 1.0
_PLAIN_TRANSPORT = "nixl"
"""What a source without sessions is read by: the reference's can do nothing else."""
RELEASE_TIMEOUT_SECONDS = 2.0
"""A release is a courtesy: sessions, and at last the lease's expiry, do it without us."""


class Source:
    """A source that is open: its client is attached. Any thread, but for `close`."""

    def __init__(
        self,
        address: SourceAddress,
        manifest: ArtifactManifest,
        transport: Transport,
        client: WorkerClient,
        clock: Clock = SYSTEM_CLOCK,
        *,
        compression: str = NONE,
        max_bytes_per_second: float | None = None,
    ) -> None:
        """`compression` is a mode, and the rate what this target takes of all its sources."""
        self.address = address
        self.client = client
        self.clock = clock
        self.link = LinkMeter(clock)
        self.compression = CompressionPolicy(compression, max_bytes_per_second, self.link)
        self.reader_count = 0
        self._artifact = ArtifactRef(address.mx_source_id, manifest.artifact_id)
        self._manifest = manifest
        self._transport = transport
        self._peers: dict[bytes, Peer] = {}
        self._lock = threading.Lock()
        self._whole: WholeLease | None = None
        self._is_open = self._is_closed = False
        self._complete = True
        self._ranges: Mapping[int, Ranges] = {}
        self._first_chunks: dict[int, int] = {}
        for chunk in reversed(manifest.chunks):
            self._first_chunks[chunk.file_index] = chunk.chunk_index

    def __str__(self) -> str:
        return self.address.endpoint

    @property
    def leases_chunks(self) -> bool:
        """Whether it leases chunks only, so that a reader reads whole chunks."""
        return self._whole is None and not self.compression.is_worthwhile

    @property
    def transport_name(self) -> str:
        """The transport that its bytes come by, once it is open."""
        return self.client.transport or _PLAIN_TRANSPORT

    @property
    def is_complete(self) -> bool:
        """Whether it has the whole artifact."""
        return self._complete

    def try_open(self, *, serves_on: bool) -> None:
        """Open it already now; where that fails, `open` will raise it."""
        with suppress(MxArtifactsError, ValueError):  # gRPC's word for a channel that was closed
            self.open(serves_on=serves_on)

    def open(self, *, serves_on: bool) -> None:
        """Attach, and lease what can be leased at once. Idempotent.

        Raises:
            NoFreeSlotError: this target `serves_on` what it reads, and enough others do; or it
                answers its smallest call only.
            PeerLostError, RemoteError, RecordNotFoundError, TransportError, ManifestInvalidError
        """
        if self._is_open:
            return
        with self._busy_if_it_answers():
            self.client.attach(self._transport.names(self.address.host))
            self.compression.on_offer(self.client.encodings, self.client.max_bytes_per_second)
            whole = self.client.lease_artifact(self._artifact, serves_on=serves_on)
        if whole is not None:
            self._check_whole(whole)
            self._connect(whole.descriptor)
            self._whole = whole
        self.refresh()
        self._is_open = True

    def _check_whole(self, whole: WholeLease) -> None:
        sizes = {file.file_index: file.size for file in self._manifest.files if file.size}
        if sizes != {index: at.length for index, at in whole.bundles.items()}:
            raise ManifestInvalidError(
                f"source {self} leases memory whose sizes differ from those of its files"
            )
        if any(at.addr + at.length > MAX_ADDRESS for at in whole.bundles.values()):
            raise ManifestInvalidError(f"source {self} leases memory at an impossible address")

    def refresh(self) -> bool:
        """Ask a source that still receives what it has now; return whether that has changed.

        Raises as `open`.
        """
        with self._busy_if_it_answers():
            complete, ranges = self.client.extension.availability(self._artifact)
        is_new = complete or _listed(ranges) != _listed(self._ranges)
        self._ranges, self._complete = ranges, complete
        return is_new

    def has(self, span: Span) -> bool:
        """Return whether a whole span can be read from the source now."""
        if self._complete:
            return True
        ranges = self._ranges.get(span.file_index)
        if ranges is None:
            return False
        start, end = span.offset, span.end
        if self.leases_chunks:  # which it does with whole ones only
            chunks = [chunk for chunk, _, _ in self.chunks_of(span)]
            start = chunks[0].file_offset
            end = chunks[-1].file_offset + chunks[-1].length
        return ranges.has(start, end)

    def check_lease(self) -> None:
        """Raise LeaseExpiredError if the lease of the whole artifact has ended."""
        if not self.client.renew_leases():
            raise LeaseExpiredError(
                f"source {self} ended the lease of this target, because it has not heard from "
                "this target for too long"
            )

    @property
    def is_detached(self) -> bool:
        """Whether it has ended our session, though it may be well."""
        return self.client.is_detached

    def check_session(self) -> None:
        """Raise PeerLostError if it has ended our session. Does not ask it."""
        self.client.check_attached()

    def hang_up(self) -> None:
        """Let calls that are under way fail."""
        self.client.close()

    def check_answers(self, timeout_seconds: float | None = None) -> None:
        """Return when it still answers, by its smallest call; raises as `open`."""
        self.client.check_answers(self._artifact, timeout_seconds)

    @contextmanager
    def _busy_if_it_answers(self) -> Iterator[None]:
        """Raise NoFreeSlotError where a call was not answered in time, but the smallest one is."""
        try:
            yield
        except PeerLostError as error:
            self._check_is_busy(error)
            raise NoFreeSlotError(f"{error}, but it answers other calls, so it is busy") from error

    def _check_is_busy(self, error: PeerLostError, timeout_seconds: float | None = None) -> None:
        """Return when it did no worse than let one call wait too long; else it is lost, so raise.

        Under load, hundreds of targets that wait for a few slots make it so slow.
        """
        if not error.is_silent:
            raise error
        self.client.check_attached()
        self.check_answers(timeout_seconds)

    def close(self) -> None:
        """Detach and disconnect. Idempotent; no thread may read from it any more."""
        self.client.close()
        with self._lock:
            self._is_closed = True
        while self._peers:
            self._peers.popitem()[1].close()

    # --- reading ---------------------------------------------------------------------------------

    def chunks_of(self, span: Span) -> Iterator[tuple[ManifestChunk, int, int]]:
        """Yield the chunks that contain a span, and the bytes of each: from, up to."""
        size, first = self._manifest.chunk_size, self._first_chunks[span.file_index]
        for number in range(span.offset // size, -(-span.end // size)):
            chunk = self._manifest.chunks[first + number]
            start = max(span.offset, chunk.file_offset) - chunk.file_offset
            yield chunk, start, min(span.end - chunk.file_offset, chunk.length)

    def batch_of(self, first: Span, waiting: Sequence[Span]) -> list[Span]:
        """Return `first`, with all others of its chunk if this source leases chunks only."""
        if not self.leases_chunks:
            return [first]
        number = first.offset // self._manifest.chunk_size
        return [
            span
            for span in waiting
            if span.file_index == first.file_index
            and span.offset // self._manifest.chunk_size == number
        ]

    @contextmanager
    def reader(self, first: Span, wait: WaitPolicy) -> Iterator[Reader[Span]]:
        """Lend the reader for `first` and the spans after it; it holds leases until then."""
        reader = self._plain_reader(wait)
        if first.chunk is None and self.compression.should_compress(first.length):
            reader = BlockReader(self, reader, wait)
        with self._lock:
            self.reader_count += 1
        try:
            yield reader
        finally:
            with self._lock:
                self.reader_count -= 1
            reader.release()

    def report_damage(self, extent: Span) -> str:
        part = (extent.file_index, extent.offset, extent.length)
        is_damaged = self.client.extension.report_damage(
            self._artifact, part, DAMAGE_REPORT_SECONDS
        )
        if is_damaged is None:
            return ""
        return (
            "; it is damaged there" if is_damaged else "; it is intact there, so check the network"
        )

    def _plain_reader(self, wait: WaitPolicy) -> Reader[Span]:
        if self._whole is not None:
            return WholeReader(self, self._whole, wait)
        return ChunkReader(self, wait)

    def bring(
        self,
        descriptor: bytes,
        source: RemoteRange,
        into: Destination,
        pending: list[PendingRead],
        wait: WaitPolicy,
    ) -> None:
        """Read `source` of the agent into memory; append the read to `pending`."""
        peer = self._connect(descriptor)
        with self.link.carrying(source.length):
            read = self._transport.post_read(peer, [source], [(into.region, into.offset)])
            pending.append(read)
            wait.finish(read)

    def _connect(self, descriptor: bytes) -> Peer:
        """Connect once for every descriptor: a source makes a new one for new memory only."""
        with self._lock:
            self._check_not_closed()
            peer = self._peers.get(descriptor)
        if peer is not None:
            return peer
        connected = self._transport.connect(descriptor, self.address.host)  # which may take seconds
        try:
            with self._lock:
                self._check_not_closed()
                peer = self._peers.setdefault(descriptor, connected)
        except BaseException:
            connected.close()
            raise
        if peer is not connected:  # another thread was faster
            connected.close()
        return peer

    def _check_not_closed(self) -> None:
        if self._is_closed:
            raise PeerLostError(f"source {self} is no longer read from")

    def prepare(self, chunk: ManifestChunk, wait: WaitPolicy) -> ChunkLease:
        """Lease `chunk`, for as long as it takes: a busy source is not a broken one."""
        return self._insist(
            lambda: self.client.prepare_chunk(
                self._artifact,
                chunk.chunk_index,
                wait.remaining(),
            ),
            wait,
        )

    def prepare_block(self, span: Span, wait: WaitPolicy) -> BlockLease | None:
        """Let the source compress `span`, as long as it takes; None if the source cannot."""
        return self._insist(
            lambda: self.client.prepare_block(
                self._artifact,
                (span.file_index, span.offset, span.length),
                encodings(),
                wait.remaining(),
            ),
            wait,
        )

    def _insist(self, prepare: Callable[[], T], wait: WaitPolicy) -> T:
        backoff = FIRST_BACKOFF_SECONDS
        wait.waits()
        while True:
            started, waited_seconds = self.clock.monotonic(), 0.0
            try:
                with self.link.waiting() if self.compression.is_limited else nullcontext():
                    return prepare()
            except NoFreeSlotError:
                if not wait.remaining():
                    raise
            except PeerLostError as error:
                self._check_is_busy(error, wait.remaining())
                waited_seconds = self.clock.monotonic() - started
            except RecordNotFoundError as error:  # it gave us its tables, so it is stopping
                raise PeerLostError(f"{error}; it served the artifact shortly before") from error
            wait.pause(backoff, waited_seconds)
            backoff = min(2 * backoff, MAX_BACKOFF_SECONDS)

    def release(self, lease: ChunkLease | BlockLease) -> bool:
        """Give `lease` back; False when it had run out."""
        try:
            self.client.release_chunk(
                self._artifact,
                lease.lease_id,
                RELEASE_TIMEOUT_SECONDS,
            )
        except (LeaseExpiredError, RecordNotFoundError):
            return False
        except MxArtifactsError as error:
            logger.debug("lease %s was not released: %s", lease.lease_id, error)
        return True


def _listed(ranges: Mapping[int, Ranges]) -> dict[int, list[tuple[int, int]]]:
    return {index: list(each) for index, each in ranges.items()}
