"""One source of an artifact, as a target reads it: whole from its memory, or chunk by chunk.

Spans are read one-sided wherever the source leases the artifact as a whole; else the chunk that a
span lies in is leased for as long as its spans are read.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import TypeVar

from mx_artifacts.bundle.spans import Span
from mx_artifacts.client.extension import BlockLease, WholeLease
from mx_artifacts.client.worker import ChunkLease, WorkerClient
from mx_artifacts.compression import NONE, encodings
from mx_artifacts.core.manifest import ArtifactManifest, ManifestChunk
from mx_artifacts.core.ranges import Ranges
from mx_artifacts.errors import (
    LeaseExpiredError,
    ManifestInvalidError,
    MxArtifactsError,
    NoFreeSlotError,
    PeerLostError,
    RecordNotFoundError,
)
from mx_artifacts.memory.pool import PooledBuffer
from mx_artifacts.runtime.clock import SYSTEM_CLOCK
from mx_artifacts.transfer.compression_policy import CompressionPolicy, LinkMeter
from mx_artifacts.transfer.readers import (
    BlockReader,
    ChunkReader,
    Reader,
    WholeReader,
)
from mx_artifacts.transfer.wait_policy import WaitPolicy
from mx_artifacts.transport.base import Peer, PendingRead, RemoteRange, Transport

T = TypeVar("T")
logger = logging.getLogger(__name__)

FIRST_BACKOFF_SECONDS = 0.05
MAX_BACKOFF_SECONDS = 1.0
MAX_ADDRESS = 1 << 64
RELEASE_TIMEOUT_SECONDS = 2.0
"""A release is a courtesy: sessions, and at last the lease's expiry, do it without us."""


@dataclass(frozen=True)
class SourceAddress:
    """Where a source listens (host:port), and under which id it serves the artifact."""

    endpoint: str
    mx_source_id: str


class Source:
    """A source that is open: its client is attached. Any thread, but for `close`."""

    def __init__(
        self,
        address: SourceAddress,
        manifest: ArtifactManifest,
        transport: Transport,
        client: WorkerClient,
        *,
        compression: str = NONE,
        max_bytes_per_second: float | None = None,
    ) -> None:
        """`compression` is a mode, and the rate what this target takes of all its sources."""
        self.address = address
        self.client = client
        self.link = LinkMeter()
        self.encoding = CompressionPolicy(compression, max_bytes_per_second, self.link)
        self.readers = 0
        self._artifact_id = manifest.artifact_id()
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
        """Whether it leases chunks only, so that those who read from one take all of it."""
        return self._whole is None and not self.encoding.pays

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
            self.client.attach()
            self.encoding.offered(self.client.encodings, self.client.max_bytes_per_second)
            whole = self.client.lease_artifact(
                self.address.mx_source_id, self._artifact_id, serves_on=serves_on
            )
        if whole is not None:
            self._check_whole(whole)
            self._connect(whole.descriptor)
            self._whole = whole
        self.refresh()
        self._is_open = True

    def _check_whole(self, whole: WholeLease) -> None:
        sizes = {file.file_index: file.size for file in self._manifest.files if file.size}
        if sizes != {index: at.length for index, at in whole.bundles.items()}:
            raise ManifestInvalidError(f"source {self} leases memory of other sizes than its files")
        if any(at.addr + at.length > MAX_ADDRESS for at in whole.bundles.values()):
            raise ManifestInvalidError(f"source {self} leases memory at no possible address")

    def refresh(self) -> bool:
        """Ask a source that is still receiving what it has by now; tell whether that is news.

        Raises as `open`.
        """
        with self._busy_if_it_answers():
            complete, ranges = self.client.extension.availability(
                self.address.mx_source_id, self._artifact_id
            )
        is_new = complete or _listed(ranges) != _listed(self._ranges)
        self._ranges, self._complete = ranges, complete
        return is_new

    def has(self, span: Span) -> bool:
        """Tell whether all of a span can be read from it now."""
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
        """Return when the artifact, leased as a whole, still is; raise LeaseExpiredError if not."""
        if not self.client.renew_leases():
            raise LeaseExpiredError(
                f"source {self} holds the artifact for this target no more: it heard nothing of it "
                "for too long"
            )

    def check_answers(self, timeout_seconds: float | None = None) -> None:
        """Return when it still answers, by its smallest call; raises as `open`."""
        self.client.check_answers(self.address.mx_source_id, self._artifact_id, timeout_seconds)

    @contextmanager
    def _busy_if_it_answers(self) -> Iterator[None]:
        """Raise NoFreeSlotError where a call was not answered in time, but the smallest one is."""
        try:
            yield
        except PeerLostError as error:
            self._check_is_busy(error)
            raise NoFreeSlotError(f"{error}, but answers others: it is busy") from error

    def _check_is_busy(self, error: PeerLostError, timeout_seconds: float | None = None) -> None:
        """Return when it did no worse than let one call wait too long; else it is lost, so raise.

        Under load, hundreds of targets that wait for a few slots make it so slow.
        """
        if not error.is_silent:
            raise error
        self.client.check_attached()
        self.check_answers(timeout_seconds)

    def close(self) -> None:
        """Detach and disconnect. Idempotent; nobody reads from it any more."""
        self.client.close()
        with self._lock:
            self._is_closed = True
        while self._peers:
            self._peers.popitem()[1].close()

    # --- reading ---------------------------------------------------------------------------------

    def chunks_of(self, span: Span) -> Iterator[tuple[ManifestChunk, int, int]]:
        """Yield the chunks that a span lies in, and which bytes of each: from, up to."""
        size, first = self._manifest.chunk_size, self._first_chunks[span.file_index]
        for number in range(span.offset // size, -(-span.end // size)):
            chunk = self._manifest.chunks[first + number]
            start = max(span.offset, chunk.file_offset) - chunk.file_offset
            yield chunk, start, min(span.end - chunk.file_offset, chunk.length)

    @contextmanager
    def reader(self, first: Span, patience: WaitPolicy) -> Iterator[Reader]:
        """Lend what reads `first` and the spans after it; it holds leases until then."""
        reader = self._choose(first, patience)
        with self._lock:
            self.readers += 1
        try:
            yield reader
        finally:
            with self._lock:
                self.readers -= 1
            reader.release()

    def _choose(self, first: Span, patience: WaitPolicy) -> Reader:
        if first.chunk is None and self.encoding.of_next(first.length):
            return BlockReader(self, patience)
        return self.plain_reader(patience)

    def plain_reader(self, patience: WaitPolicy) -> Reader:
        """Return what reads bytes as they are."""
        if self._whole is not None:
            return WholeReader(self, self._whole, patience)
        return ChunkReader(self, patience)

    def bring(
        self,
        descriptor: bytes,
        source: RemoteRange,
        into: tuple[PooledBuffer, int],
        pending: list[PendingRead],
        patience: WaitPolicy,
    ) -> None:
        """Read `source` into a buffer from an offset on; `pending` gets the read."""
        buffer, offset = into
        peer = self._connect(descriptor)
        with self.link.carrying(source.length):
            read = self._transport.post_read(peer, [source], [(buffer.region, offset)])
            pending.append(read)
            patience.finish(read)

    def _connect(self, descriptor: bytes) -> Peer:
        """Connect once for every descriptor: a source makes a new one for new memory only."""
        with self._lock:
            if self._is_closed:
                raise PeerLostError(f"source {self} is not read from any more")
            if descriptor not in self._peers:
                self._peers[descriptor] = self._transport.connect(descriptor)
            return self._peers[descriptor]

    def prepare(self, chunk: ManifestChunk, patience: WaitPolicy) -> ChunkLease:
        """Lease `chunk`, for as long as it takes: a busy source is not a broken one."""
        return self._insist(
            lambda: self.client.prepare_chunk(
                self.address.mx_source_id,
                self._artifact_id,
                chunk.chunk_index,
                patience.remaining(),
            ),
            patience,
        )

    def prepare_block(self, span: Span, patience: WaitPolicy) -> BlockLease | None:
        """Let it encode `span`, likewise; None where it cannot."""
        return self._insist(
            lambda: self.client.prepare_block(
                self.address.mx_source_id,
                self._artifact_id,
                (span.file_index, span.offset, span.length),
                encodings(),
                patience.remaining(),
            ),
            patience,
        )

    def _insist(self, prepare: Callable[[], T], patience: WaitPolicy) -> T:
        backoff = FIRST_BACKOFF_SECONDS
        patience.waits()
        while True:
            started, waited_seconds = SYSTEM_CLOCK.monotonic(), 0.0
            try:
                with self.link.waiting() if self.encoding.is_limited else nullcontext():
                    return prepare()
            except NoFreeSlotError:
                if not patience.remaining():
                    raise
            except PeerLostError as error:
                self._check_is_busy(error, patience.remaining())
                waited_seconds = SYSTEM_CLOCK.monotonic() - started
            except RecordNotFoundError as error:  # it gave us its tables, so it is stopping
                raise PeerLostError(f"{error}; it served that a moment ago") from error
            patience.pause(backoff, waited_seconds)
            backoff = min(2 * backoff, MAX_BACKOFF_SECONDS)

    def release(self, lease: ChunkLease | BlockLease) -> bool:
        """Give `lease` back; False when it had run out."""
        try:
            self.client.release_chunk(
                self.address.mx_source_id,
                self._artifact_id,
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
