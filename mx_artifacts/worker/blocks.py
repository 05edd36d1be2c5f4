"""Blocks of bundles, compressed into registered memory for targets on slow links."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError  # another class in 3.10
from contextlib import suppress
from dataclasses import dataclass

from mx_artifacts.compression import ZSTD, compress
from mx_artifacts.errors import LeaseError, MxArtifactsError, NoFreeSlotError
from mx_artifacts.memory.pool import BufferPool
from mx_artifacts.transport.base import RemoteRange, Transport
from mx_artifacts.worker.admission import Turn
from mx_artifacts.worker.catalogue import ServedArtifact

MAX_BLOCK_BYTES = 4 * 1024 * 1024
"""As long as a span may be."""
KEPT_BYTES = 64 * 1024 * 1024
"""Of compressed blocks, for the next target that asks for the same."""
WORTH_IT = 0.95
"""A block that stays larger than this part of itself goes as it is."""

_ENTRY_BYTES = 1024
"""Above what an entry takes beside its frame."""

_Key = tuple[str, int, int, int]
"""Artifact id, file index, offset, length."""


@dataclass(frozen=True)
class Block:
    """The place of an encoded block, until `give_back` is called (once)."""

    at: RemoteRange
    descriptors: Mapping[str, bytes]
    encoding: str
    give_back: Callable[[], None]


class Blocks:
    """Makes blocks in `slots` registered buffers, which exist from the first target on.

    All methods may be called from any thread. As many are compressed at once as there are slots.
    """

    def __init__(self, transport: Transport, slots: int) -> None:
        self._transport = transport
        self._slots = slots
        self._lock = threading.Lock()
        self._pool: BufferPool | None = None
        self._descriptors: Mapping[str, bytes] = {}
        self._closed = False
        self._kept = _KeptFrame(KEPT_BYTES)

    def warm_up(self) -> None:
        """Make the slots now, if they can be had: the first block shall not seem slow for it."""
        with suppress(MxArtifactsError):
            self._opened()

    def lease(
        self,
        served: ServedArtifact,
        file_index: int,
        offset: int,
        length: int,
        turn: Turn,
    ) -> Block:
        """Compress a block, if that makes it smaller.

        Raises:
            NoFreeSlotError: no slot came free within the turn, the rate limit does not allow what
                would be read, or the bytes are not there yet.
            BundleError: the bundle cannot be read.
            LeaseError: closed.
            RegistrationError: no memory for the slots.
        """
        pool = self._opened()
        slot = pool.acquire(turn.remaining())
        try:
            with served.source.block(file_index, offset, length) as data:
                key = (served.artifact_id, file_index, offset, length)
                frame = self._kept.get(key, lambda: _smaller(data), turn.remaining())
                stored = frame or data
                turn.admit(len(stored))
                slot.view[: len(stored)] = stored
        except BaseException:
            pool.release(slot)
            raise
        at = RemoteRange(slot.region.addr, len(stored))
        encoding = ZSTD if frame else ""
        return Block(at, self._descriptors, encoding, lambda: pool.release(slot))

    def _opened(self) -> BufferPool:
        with self._lock:
            if self._closed:
                raise LeaseError("the source is stopping and compresses no more blocks")
            if self._pool is None:
                self._pool = BufferPool(self._transport, self._slots, MAX_BLOCK_BYTES)
                self._descriptors = self._transport.descriptors()
            return self._pool

    def close(self) -> None:
        """Lease no more; the memory goes with the last lease. Idempotent."""
        with self._lock:
            self._closed = True
            pool = self._pool
        if pool is not None:
            pool.close()


def _smaller(data: memoryview) -> bytes:
    """Return `data` compressed; empty where that is not worth it."""
    frame = compress(data)
    return frame if len(frame) <= WORTH_IT * len(data) else b""


class _KeptFrame:
    """Recently made frames, at most `limit_bytes`. Any thread.

    A caller that needs a frame that is being made waits for it.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._frames: OrderedDict[_Key, Future[bytes]] = OrderedDict()
        self._bytes = 0

    def get(self, key: _Key, make: Callable[[], bytes], timeout_seconds: float) -> bytes:
        with self._lock:
            known = self._frames.get(key)
            if known is not None:
                self._frames.move_to_end(key)
            else:
                mine = self._frames[key] = Future()
        if known is not None:
            try:
                return known.result(timeout_seconds)
            except FutureTimeoutError:
                raise NoFreeSlotError("the block is still being compressed") from None
        try:
            frame = make()
        except BaseException as error:
            with self._lock:
                del self._frames[key]
            mine.set_exception(error)
            raise
        mine.set_result(frame)
        self._count(frame)
        return frame

    def _count(self, frame: bytes) -> None:
        """Count what was made, and forget the oldest."""
        with self._lock:
            self._bytes += len(frame) + _ENTRY_BYTES
            while self._bytes > self._limit_bytes:
                key = next(key for key, each in self._frames.items() if each.done())
                self._bytes -= len(self._frames.pop(key).result()) + _ENTRY_BYTES
