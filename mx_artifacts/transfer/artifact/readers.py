"""Readers of spans: of a whole leased artifact, of leased chunks, or of compressed blocks.

A reader is lent to one thread (`Source.reader`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Protocol

from mx_artifacts.bundle.spans import Span
from mx_artifacts.client.extension import BlockLease, WholeLease
from mx_artifacts.client.worker import ChunkLease
from mx_artifacts.compression import ZSTD, decompress
from mx_artifacts.core.manifest import ManifestChunk
from mx_artifacts.errors import ManifestInvalidError
from mx_artifacts.runtime.clock import Clock
from mx_artifacts.transfer.artifact.compression_policy import CompressionPolicy
from mx_artifacts.transfer.artifact.source_claims import check_address, check_lease
from mx_artifacts.transfer.base import Destination, Reader
from mx_artifacts.transfer.wait_policy import WaitPolicy
from mx_artifacts.transport.base import PendingRead, RemoteRange

logger = logging.getLogger(__name__)


class SpanSource(Protocol):
    """What readers need of a source (`source.py`)."""

    @property
    def clock(self) -> Clock: ...

    @property
    def compression(self) -> CompressionPolicy: ...

    @property
    def reader_count(self) -> int:
        """How many threads read from it now."""
        ...

    def bring(
        self,
        descriptor: bytes,
        source: RemoteRange,
        into: Destination,
        pending: list[PendingRead],
        wait: WaitPolicy,
    ) -> None:
        """Read `source` of the agent into memory; append the read to `pending`."""
        ...

    def chunks_of(self, span: Span) -> Iterator[tuple[ManifestChunk, int, int]]:
        """Yield the chunks that contain a span, and the range [from, to) of each."""
        ...

    def prepare(self, chunk: ManifestChunk, wait: WaitPolicy) -> ChunkLease:
        """Lease a chunk."""
        ...

    def prepare_block(self, span: Span, wait: WaitPolicy) -> BlockLease | None:
        """Lease a compressed copy of a span; None if the source makes none."""
        ...

    def release(self, lease: ChunkLease | BlockLease) -> bool:
        """Give a lease back; return False if it had expired."""
        ...

    def check_lease(self) -> None:
        """Raise LeaseExpiredError unless the artifact is still leased as a whole."""
        ...


class WholeReader:
    """Reads any range of an artifact that is leased as a whole."""

    def __init__(self, source: SpanSource, whole: WholeLease, wait: WaitPolicy) -> None:
        self._source = source
        self._whole = whole
        self._wait = wait

    def read(self, span: Span, into: Destination, pending: list[PendingRead]) -> int:
        bundle = self._whole.bundles[span.file_index]
        at = RemoteRange(bundle.addr + span.offset, span.length, bundle.device_id)
        self._source.bring(self._whole.descriptor, at, into, pending, self._wait)
        return span.length

    def release(self) -> bool:
        return True  # the lease ends with the session

    def still_holds(self) -> bool:
        self._source.check_lease()
        return True


class ChunkReader:
    """Reads spans of the chunk that it leases; keeps the last one's lease for the next span."""

    def __init__(self, source: SpanSource, wait: WaitPolicy) -> None:
        self._source = source
        self._wait = wait
        self._chunk: ManifestChunk | None = None
        self._lease: ChunkLease | None = None

    def read(self, span: Span, into: Destination, pending: list[PendingRead]) -> int:
        position = 0
        for chunk, start, end in self._source.chunks_of(span):
            if chunk != self._chunk:
                self.release()
                self._lease, self._chunk = self._source.prepare(chunk, self._wait), chunk
                check_lease(self._lease, chunk)
            assert self._lease is not None, "a chunk was leased"
            at = self._lease.source
            part = RemoteRange(at.addr + start, end - start, at.device_id)
            at_part = Destination(into.region, into.offset + position, into.view[position:])
            self._source.bring(self._lease.descriptor, part, at_part, pending, self._wait)
            position += end - start
        return span.length

    def release(self) -> bool:
        lease, self._lease, self._chunk = self._lease, None, None
        return lease is None or self._source.release(lease)

    def still_holds(self) -> bool:
        return self.release()


class BlockReader:
    """Reads spans that the source compresses, a lease for each; `plain` reads those it cannot."""

    def __init__(self, source: SpanSource, plain: Reader[Span], wait: WaitPolicy) -> None:
        self._source = source
        self._wait = wait
        self._plain = plain
        self._lease: BlockLease | None = None
        self._span_bytes = 0
        self._besides_seconds = 0.0

    def read(self, span: Span, into: Destination, pending: list[PendingRead]) -> int:
        self.release()
        started = self._source.clock.monotonic()
        lease = self._lease = self._source.prepare_block(span, self._wait)
        if lease is None:
            self._source.compression.disable()
            return self._plain.read(span, into, pending)
        stored = lease.at.length
        _check_block(self._source, lease, span)
        prepared = self._source.clock.monotonic()
        self._source.bring(lease.descriptor, lease.at, into, pending, self._wait)
        brought = self._source.clock.monotonic()
        if lease.encoding:
            wrong = decompress(bytes(into.view[:stored]), into.view)
            if wrong:  # then the checksums are wrong, too
                logger.warning("source %s: a block of %d bytes: %s", self._source, stored, wrong)
        self._span_bytes = span.length
        # That a source grants so much only after a while is what its link costs.
        preparing_seconds = 0.0 if self._source.compression.is_limited else prepared - started
        self._besides_seconds = self._source.clock.monotonic() - brought + preparing_seconds
        return stored

    def release(self) -> bool:
        held = self._plain.release()
        lease, self._lease = self._lease, None
        if lease is None:
            return held
        started = self._source.clock.monotonic()
        held = self._source.release(lease) and held
        if self._span_bytes:
            besides = self._besides_seconds + self._source.clock.monotonic() - started
            readers = self._source.reader_count
            self._source.compression.record(self._span_bytes, lease.at.length, besides, readers)
            self._span_bytes = 0
        return held

    def still_holds(self) -> bool:
        return self.release() if self._lease is not None else self._plain.still_holds()


def _check_block(source: SpanSource, lease: BlockLease, span: Span) -> None:
    stored, encoding = lease.at.length, lease.encoding
    good = 0 < stored <= span.length if encoding == ZSTD else stored == span.length
    if encoding not in ("", ZSTD) or not good:
        raise ManifestInvalidError(
            f"source {source} leases {stored} bytes, encoded as {encoding[:16]!r}, for a block of "
            f"{span.length}"
        )
    check_address(lease.at)
