"""A fixed set of registered buffers, lent in the order of the requests."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from mx_artifacts.errors import LeaseError, NoFreeSlotError, RegistrationError
from mx_artifacts.memory.buffers import Buffer, allocate
from mx_artifacts.transport.base import Region, Transport

QUARANTINE_POLL_SECONDS = 0.02
"""How often a waiter asks whether a quarantined buffer is free; small against a chunk's read."""


@dataclass(frozen=True, eq=False)
class PooledBuffer:
    """A lent buffer: `view` and `region` are the same bytes. Give it back to its pool."""

    region: Region
    view: memoryview


_abandoned: dict[PooledBuffer, Buffer] = {}
"""Buffers of closed pools that a transport may still write to: kept mapped."""


class BufferPool:
    """`count` buffers of `size_bytes` each, registered with `transport` for the pool's life.

    All methods may be called from any thread. Waiters are served first come, first served.
    Every lent buffer comes back exactly once, by `release` or by `quarantine`.
    """

    def __init__(
        self, transport: Transport, count: int, size_bytes: int, *, spares: int = 0
    ) -> None:
        """Allocate and register everything now, so that a lack of memory shows at the start.

        Up to `spares` more buffers are made later, each for one that goes into quarantine.

        Raises:
            RegistrationError: too little memory, or the memlock limit; nothing stays registered.
        """
        if count <= 0:
            raise ValueError(f"a pool of {count} buffers makes no sense")
        self._changed = threading.Condition()
        self._memory: dict[PooledBuffer, Buffer] = {}
        self._free: deque[PooledBuffer] = deque()
        self._lent: set[PooledBuffer] = set()
        self._quarantined: dict[PooledBuffer, Callable[[], bool]] = {}
        self._waiters: deque[object] = deque()
        self._closed = False
        self._spares = spares
        self._transport, self._size_bytes = transport, size_bytes
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(self.close)
            for _ in range(count):
                self._add()
            on_failure.pop_all()

    def _add(self) -> None:
        memory = allocate(self._size_bytes)
        try:
            pooled = PooledBuffer(self._transport.register(memory.view), memory.view)
        except BaseException:
            memory.close()
            raise
        self._memory[pooled] = memory
        self._free.append(pooled)

    def acquire(self, timeout_seconds: float) -> PooledBuffer:
        """Return a buffer that no other thread uses; wait for one if necessary.

        Raises:
            NoFreeSlotError: no buffer became free in time.
            LeaseError: the pool was closed.
        """
        deadline = time.monotonic() + timeout_seconds
        ticket = object()
        with self._changed:
            self._waiters.append(ticket)
            try:
                return self._take(ticket, deadline)
            except TimeoutError:
                raise NoFreeSlotError(
                    f"all {len(self._memory)} buffers are in use "
                    f"({len(self._quarantined)} in quarantine)"
                ) from None
            finally:
                self._waiters.remove(ticket)
                self._changed.notify_all()  # the next in line may go on

    def _take(self, ticket: object, deadline: float) -> PooledBuffer:
        while True:
            if self._closed:
                raise LeaseError("the buffer pool is closed")
            if self._waiters[0] is ticket:
                self._end_quarantines()
                if self._free:
                    buffer = self._free.popleft()
                    self._lent.add(buffer)
                    return buffer
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError
            # Nobody tells when a quarantine ends, so the first in line asks.
            polls = self._quarantined and self._waiters[0] is ticket
            self._changed.wait(min(remaining, QUARANTINE_POLL_SECONDS) if polls else remaining)

    def release(self, buffer: PooledBuffer) -> None:
        """Return `buffer` to the pool; the first thread that waits gets it.

        Raises:
            ValueError: it is not from this pool, or was already returned.
        """
        with self._changed:
            self._take_back(buffer)
            self._make_free(buffer)
            self._changed.notify_all()

    def quarantine(self, buffer: PooledBuffer, is_free: Callable[[], bool]) -> None:
        """Give back `buffer`, which may still be written until `is_free()` is true.

        `is_free` is called at times from any thread under the pool's lock: it must be quick,
        must not raise and must not call the pool. `PendingRead.done` is what it is made for.

        Raises:
            ValueError: it is not from this pool, or was already returned.
        """
        with self._changed:
            self._take_back(buffer)
            self._quarantined[buffer] = is_free
            if self._spares > 0 and not self._closed:
                self._spares -= 1
                with contextlib.suppress(RegistrationError):  # then it must be waited for
                    self._add()
            self._changed.notify_all()

    def close(self, timeout_seconds: float = 0.0) -> int:
        """Refuse new acquires, wait for lent and quarantined buffers, and free what is free.

        What is still lent is freed when it comes back. What may still be written stays mapped
        and registered, until another `close` finds it free or the process ends.

        Returns:
            How many buffers were not freed.
        """
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            while self._free:
                self._unmap(self._free.popleft())
            while self._lent or self._quarantined:
                self._end_quarantines()
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    break
                self._changed.wait(min(remaining, QUARANTINE_POLL_SECONDS))
            _abandoned.update({buffer: self._memory[buffer] for buffer in self._quarantined})
            return len(self._lent) + len(self._quarantined)

    def _take_back(self, buffer: PooledBuffer) -> None:
        if buffer not in self._lent:
            raise ValueError("this buffer is not from this pool, or was already returned")
        self._lent.remove(buffer)

    def _end_quarantines(self) -> None:
        for buffer in [b for b, is_free in self._quarantined.items() if is_free()]:
            del self._quarantined[buffer]
            self._make_free(buffer)

    def _make_free(self, buffer: PooledBuffer) -> None:
        if self._closed:
            self._unmap(buffer)
        else:
            self._free.append(buffer)

    def _unmap(self, buffer: PooledBuffer) -> None:
        _abandoned.pop(buffer, None)
        buffer.region.close()
        self._memory.pop(buffer).close()
