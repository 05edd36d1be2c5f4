"""Moves chunks: several at once, each on its own way, with no barrier between them.

A chunk's way: buffer -> prepare (the source leases it) -> read -> release -> verify -> write.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mx_artifacts.client.worker import ChunkLease, WorkerClient
from mx_artifacts.clock import SYSTEM_CLOCK
from mx_artifacts.core.digest import crc32c, crc32c_hex
from mx_artifacts.core.manifest import ManifestChunk
from mx_artifacts.errors import (
    ChunkChecksumError,
    LeaseExpiredError,
    MxArtifactsError,
    NoFreeSlotError,
    PeerLostError,
    ReadTimeoutError,
    RecordNotFoundError,
)
from mx_artifacts.memory.pool import BufferPool, PooledBuffer
from mx_artifacts.observability.events import Event, EventSink
from mx_artifacts.threads import WorkStopped
from mx_artifacts.transfer.deadline import SLOW_HINT, Deadline
from mx_artifacts.transfer.plan import check_lease
from mx_artifacts.transfer.receiver import Receiver
from mx_artifacts.transport.base import Peer, PendingRead, Transport

logger = logging.getLogger(__name__)

MAX_CORRUPT_READS = 2
"""Damaged arrivals of one chunk that are read again; one more, and the source counts as broken."""
FIRST_BACKOFF_SECONDS = 0.05
MAX_BACKOFF_SECONDS = 1.0
READ_SLICE_SECONDS = 0.25
"""How long a stalled read goes unwatched: bounds the notice of a lost source or another's error."""
STALLED_SLICES = 20
"""A read that stalls this often in a row (5 s) makes us ask the source whether it still answers."""
OVERTIME_SECONDS = 2.0
"""Threads notice the deadline by themselves, unless the transport does not let go of them."""
RELEASE_TIMEOUT_SECONDS = 2.0
"""A release is a courtesy: sessions, and at last the lease's expiry, do it without us."""


@dataclass(frozen=True)
class Target:
    """Where a pipeline reads from, and where to: all of it the caller's."""

    client: WorkerClient
    mx_source_id: str
    artifact_id: str
    transport: Transport
    receiver: Receiver
    deadline: Deadline
    rng: random.Random
    events: EventSink


class Pipeline:
    """Receives `chunks` with one thread a buffer of `pool`. Use once: `run`, then `close`."""

    def __init__(
        self, target: Target, chunks: Sequence[ManifestChunk], pool: BufferPool, threads: int
    ) -> None:
        self._target = target
        self._pool = pool
        self._total = len(chunks)
        self._todo: Iterator[ManifestChunk] = iter(chunks)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._over = threading.Event()
        self._running = threads
        self._error: BaseException | None = None
        self._peers: dict[bytes, Peer] = {}
        self._peers_lock = threading.Lock()
        self.done_chunks = 0
        self.done_bytes = 0
        self._threads = [
            threading.Thread(target=self._work, name=f"mx-transfer-{n}", daemon=True)
            for n in range(threads)
        ]

    def run(self) -> None:
        """Return when every chunk was written; raise the first error at once otherwise.

        Raises:
            ChunkChecksumError, ManifestInvalidError, NoFreeSlotError, TransportError and what
            WorkerClient and the receiver raise.
        """
        for thread in self._threads:
            thread.start()
        self._over.wait(self._target.deadline.remaining() + OVERTIME_SECONDS)
        if self._error is not None:
            raise self._error
        if self.done_chunks != self._total:  # a hole must never look like a file
            raise self._too_late()

    def close(self, timeout_seconds: float) -> bool:
        """Stop what still runs and disconnect; True when all threads ended in time."""
        self._stop.set()
        wait = Deadline(timeout_seconds, SYSTEM_CLOCK)
        for thread in self._threads:
            if thread.is_alive():
                thread.join(wait.remaining())
        if any(thread.is_alive() for thread in self._threads):
            return False
        while self._peers:
            self._peers.popitem()[1].close()
        return True

    def progress(self) -> str:
        """Say how far it got."""
        return f"{self.done_chunks} of {self._total} chunks, {self.done_bytes} bytes arrived"

    # --- one thread ------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while (chunk := self._next()) is not None:
                self._receive(chunk)
                self._finished(chunk)
        except WorkStopped:
            pass
        except BaseException as error:
            self._fail(error)
        finally:
            with self._lock:
                self._running -= 1
                if self._running == 0:
                    self._over.set()

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._error = self._error or error
        self._stop.set()
        self._target.receiver.stop()
        self._over.set()

    def _next(self) -> ManifestChunk | None:
        with self._lock:
            return None if self._stop.is_set() else next(self._todo, None)

    def _finished(self, chunk: ManifestChunk) -> None:
        with self._lock:
            self.done_chunks += 1
            self.done_bytes += chunk.length
        self._target.events(Event("transfer.chunk", {"length_bytes": chunk.length}))

    def _check_going(self) -> None:
        """Raise when there is no point in waiting any longer."""
        if self._stop.is_set():
            raise WorkStopped
        if self._target.deadline.passed:
            raise self._too_late()
        self._target.client.check_attached()

    def _too_late(self) -> ReadTimeoutError:
        return ReadTimeoutError(
            f"{self._target.deadline.budget_seconds:g} s were not enough to receive from "
            f"source {self._target.client.endpoint}",
            hint=SLOW_HINT,
        )

    def _receive(self, chunk: ManifestChunk) -> None:
        corrupt = 0
        while True:
            self._check_going()
            with self._buffer() as (buffer, pending):
                data = buffer.view[: chunk.length]
                lease = self._prepare(chunk)
                held = False
                try:
                    check_lease(lease, chunk)
                    self._read(lease, buffer, pending)
                finally:
                    held = self._release(lease)
                actual = crc32c_hex(crc32c(data))
                if actual == chunk.checksum:
                    self._check_going()
                    self._target.receiver.write(chunk, data)
                    return
            # Under a lease that ran out, other bytes are to be expected: that is no damage.
            corrupt += held
            logger.warning("chunk %d arrived damaged (lease held: %s)", chunk.chunk_index, held)
            if corrupt > MAX_CORRUPT_READS:
                raise ChunkChecksumError(
                    f"source {self._target.client.endpoint}: chunk {chunk.chunk_index} arrived "
                    f"{corrupt} times with a wrong checksum, at last {actual} for {chunk.checksum}"
                )

    @contextlib.contextmanager
    def _buffer(self) -> Iterator[tuple[PooledBuffer, list[PendingRead]]]:
        """Lend a buffer and a list for the read into it, which decides when it is free again."""
        buffer = self._pool.acquire(self._target.deadline.remaining())
        pending: list[PendingRead] = []
        try:
            yield buffer, pending
        finally:
            if pending and not pending[0].done():
                self._pool.quarantine(buffer, pending[0].done)
            else:
                self._pool.release(buffer)

    def _prepare(self, chunk: ManifestChunk) -> ChunkLease:
        """Lease `chunk`, for as long as it takes: a busy source is not a broken one."""
        target = self._target
        backoff = FIRST_BACKOFF_SECONDS
        while True:
            try:
                return target.client.prepare_chunk(
                    target.mx_source_id,
                    target.artifact_id,
                    chunk.chunk_index,
                    target.deadline.remaining(),
                )
            except NoFreeSlotError:
                if target.deadline.passed:
                    raise
            except RecordNotFoundError as error:  # it gave us its tables, so it is stopping
                raise PeerLostError(f"{error}; it served that a moment ago") from error
            # Jitter, so that targets that were refused together do not come back together.
            pause = backoff * target.rng.uniform(0.5, 1.0)
            self._stop.wait(min(pause, target.deadline.remaining()))
            self._check_going()
            backoff = min(2 * backoff, MAX_BACKOFF_SECONDS)

    def _read(self, lease: ChunkLease, buffer: PooledBuffer, pending: list[PendingRead]) -> None:
        target = self._target
        peer = self._connect(lease.descriptor)
        read = target.transport.post_read(peer, [lease.source], [(buffer.region, 0)])
        pending.append(read)
        stalled = 0
        while True:
            try:
                read.wait(min(READ_SLICE_SECONDS, target.deadline.remaining()))
                return
            except ReadTimeoutError:
                self._check_going()
            stalled += 1
            if stalled % STALLED_SLICES == 0:
                target.client.check_answers(target.mx_source_id, target.artifact_id)

    def _connect(self, descriptor: bytes) -> Peer:
        """Connect once for every descriptor: a source makes a new one for new memory only."""
        with self._peers_lock:
            if descriptor not in self._peers:
                self._peers[descriptor] = self._target.transport.connect(descriptor)
            return self._peers[descriptor]

    def _release(self, lease: ChunkLease) -> bool:
        """Give `lease` back; False when it had run out."""
        target = self._target
        try:
            target.client.release_chunk(
                target.mx_source_id, target.artifact_id, lease.lease_id, RELEASE_TIMEOUT_SECONDS
            )
        except (LeaseExpiredError, RecordNotFoundError):
            return False
        except MxArtifactsError as error:
            logger.debug("lease %s was not released: %s", lease.lease_id, error)
        return True
