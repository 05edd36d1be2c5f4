"""What reads spans from a source: from its memory, from chunks, or from compressed blocks.

A reader is lent by a source to one thread.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from mx_artifacts.bundle.spans import Span
from mx_artifacts.client.extension import BlockLease, WholeLease
from mx_artifacts.client.worker import ChunkLease
from mx_artifacts.compression import ZSTD, decompress
from mx_artifacts.core.manifest import ManifestChunk
from mx_artifacts.errors import ManifestInvalidError
from mx_artifacts.memory.pool import PooledBuffer
from mx_artifacts.runtime.clock import SYSTEM_CLOCK
from mx_artifacts.transfer.source_claims import check_lease
from mx_artifacts.transfer.wait_policy import WaitPolicy
from mx_artifacts.transport.base import PendingRead, RemoteRange

if TYPE_CHECKING:
    from mx_artifacts.transfer.source import Source

logger = logging.getLogger(__name__)


class Reader(Protocol):
    """Reads spans of a source. One thread."""

    def read(self, span: Span, buffer: PooledBuffer, pending: list[PendingRead]) -> int:
        """Bring a span to the begin of `buffer`; `pending` gets the reads that use it.

        Returns how many bytes were carried.
        """
        ...

    def release(self) -> bool:
        """Give back what is leased, if anything is; False when it had run out."""
        ...

    def still_holds(self) -> bool:
        """Tell whether what was read was leased until now; a lease of its own is given back.

        Raises:
            LeaseExpiredError: the artifact was leased as a whole, and is no more.
        """
        ...


class WholeReader:
    """Reads any range of an artifact that is leased as a whole."""

    def __init__(self, source: Source, whole: WholeLease, patience: WaitPolicy) -> None:
        self._source = source
        self._whole = whole
        self._patience = patience

    def read(self, span: Span, buffer: PooledBuffer, pending: list[PendingRead]) -> int:
        bundle = self._whole.bundles[span.file_index]
        at = RemoteRange(bundle.addr + span.offset, span.length, bundle.device_id)
        self._source.bring(self._whole.descriptor, at, (buffer, 0), pending, self._patience)
        return span.length

    def release(self) -> bool:
        return True  # the lease ends with the session

    def still_holds(self) -> bool:
        self._source.check_lease()
        return True


class ChunkReader:
    """Reads spans of the chunk that it leases; keeps the last one's lease for the next span."""

    def __init__(self, source: Source, patience: WaitPolicy) -> None:
        self._source = source
        self._patience = patience
        self._chunk: ManifestChunk | None = None
        self._lease: ChunkLease | None = None

    def read(self, span: Span, buffer: PooledBuffer, pending: list[PendingRead]) -> int:
        position = 0
        for chunk, start, end in self._source.chunks_of(span):
            if chunk != self._chunk:
                self.release()
                self._lease, self._chunk = self._source.prepare(chunk, self._patience), chunk
                check_lease(self._lease, chunk)
            assert self._lease is not None, "a chunk was leased"
            at = self._lease.source
            part = RemoteRange(at.addr + start, end - start, at.device_id)
            into = (buffer, position)
            self._source.bring(self._lease.descriptor, part, into, pending, self._patience)
            position += end - start
        return span.length

    def release(self) -> bool:
        lease, self._lease, self._chunk = self._lease, None, None
        return lease is None or self._source.release(lease)

    def still_holds(self) -> bool:
        return self.release()


class BlockReader:
    """Reads spans that the source compresses for it, one lease for each."""

    def __init__(self, source: Source, patience: WaitPolicy) -> None:
        self._source = source
        self._patience = patience
        self._plain = source.plain_reader(patience)
        self._lease: BlockLease | None = None
        self._span_bytes = 0
        self._besides_seconds = 0.0

    def read(self, span: Span, buffer: PooledBuffer, pending: list[PendingRead]) -> int:
        self.release()
        started = SYSTEM_CLOCK.monotonic()
        lease = self._lease = self._source.prepare_block(span, self._patience)
        if lease is None:
            self._source.encoding.refused()
            return self._plain.read(span, buffer, pending)
        stored = lease.at.length
        _check_block(self._source, lease, span)
        prepared = SYSTEM_CLOCK.monotonic()
        self._source.bring(lease.descriptor, lease.at, (buffer, 0), pending, self._patience)
        brought = SYSTEM_CLOCK.monotonic()
        if lease.encoding:
            wrong = decompress(bytes(buffer.view[:stored]), buffer.view[: span.length])
            if wrong:  # then the checksums are wrong, too
                logger.warning("source %s: a block of %d bytes: %s", self._source, stored, wrong)
        self._span_bytes = span.length
        # That a source grants so much only after a while is what its link costs.
        preparing_seconds = 0.0 if self._source.encoding.is_limited else prepared - started
        self._besides_seconds = SYSTEM_CLOCK.monotonic() - brought + preparing_seconds
        return stored

    def release(self) -> bool:
        held = self._plain.release()
        lease, self._lease = self._lease, None
        if lease is None:
            return held
        started = SYSTEM_CLOCK.monotonic()
        held = self._source.release(lease) and held
        if self._span_bytes:
            besides = self._besides_seconds + SYSTEM_CLOCK.monotonic() - started
            readers = self._source.readers
            self._source.encoding.came(self._span_bytes, lease.at.length, besides, readers)
            self._span_bytes = 0
        return held

    def still_holds(self) -> bool:
        return self.release() if self._lease is not None else self._plain.still_holds()


def _check_block(source: Source, lease: BlockLease, span: Span) -> None:
    stored, encoding = lease.at.length, lease.encoding
    good = 0 < stored <= span.length if encoding == ZSTD else stored == span.length
    if encoding not in ("", ZSTD) or not good:
        raise ManifestInvalidError(
            f"source {source} leases {stored} bytes, encoded as {encoding[:16]!r}, for a block of "
            f"{span.length}"
        )
