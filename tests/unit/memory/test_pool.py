"""The buffer pool: order, quarantine and the end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from mx_artifacts.errors import LeaseError, NoFreeSlotError, RegistrationError
from mx_artifacts.memory.buffers import allocate
from mx_artifacts.memory.pool import BufferPool, PooledBuffer
from mx_artifacts.transport.base import DeviceMemory, Region
from mx_artifacts.transport.inproc import InprocTransport

WAIT_SECONDS = 30.0


@pytest.fixture
def transport() -> Iterator[InprocTransport]:
    with closing(InprocTransport("pool-owner")) as transport:
        yield transport


def regions(transport: InprocTransport) -> int:
    return transport.descriptor().count(b"], [") + transport.descriptor().count(b"[[")


class Waiter:
    """A thread that waits for a buffer; the test sees when it is in line."""

    def __init__(self, pool: BufferPool) -> None:
        self.got: PooledBuffer | None = None
        self.error: Exception | None = None
        before = len(pool._waiters)
        self._thread = threading.Thread(target=self._run, args=(pool,))
        self._thread.start()
        while self._thread.is_alive() and len(pool._waiters) == before:
            threading.Event().wait(0.001)

    def _run(self, pool: BufferPool) -> None:
        try:
            self.got = pool.acquire(WAIT_SECONDS)
        except LeaseError as error:
            self.error = error

    def join(self) -> PooledBuffer | None:
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive()
        return self.got


def test_region_and_view_are_the_same_bytes(transport: InprocTransport) -> None:
    with closing(BufferPool(transport, 2, 4096)) as pool:
        first, second = pool.acquire(0.0), pool.acquire(0.0)
        assert first.region.length == len(first.view) == 4096
        assert first.region.addr % 4096 == 0
        assert first.region.addr != second.region.addr
        pool.release(first)
        pool.release(second)
    assert regions(transport) == 0


def test_no_free_buffer_is_an_error_after_the_timeout(transport: InprocTransport) -> None:
    with closing(BufferPool(transport, 1, 64)) as pool:
        buffer = pool.acquire(0.0)
        with pytest.raises(NoFreeSlotError, match="all 1 buffers are in use"):
            pool.acquire(0.01)
        pool.release(buffer)
        pool.release(pool.acquire(0.0))


def test_waiters_are_served_in_the_order_they_came(transport: InprocTransport) -> None:
    with closing(BufferPool(transport, 1, 64)) as pool:
        held = pool.acquire(0.0)
        waiters = [Waiter(pool) for _ in range(16)]
        for position, waiter in enumerate(waiters):
            pool.release(held)
            got = waiter.join()
            assert got is not None
            assert all(later.got is None for later in waiters[position + 1 :])
            held = got
        pool.release(held)


def test_a_thread_that_gives_up_leaves_the_queue(transport: InprocTransport) -> None:
    with closing(BufferPool(transport, 1, 64)) as pool:
        held = pool.acquire(0.0)
        with pytest.raises(NoFreeSlotError):
            pool.acquire(0.0)
        waiter = Waiter(pool)
        pool.release(held)
        got = waiter.join()
        assert got is held
        pool.release(got)


def test_many_threads_never_share_a_buffer(transport: InprocTransport) -> None:
    failures: list[int] = []
    with closing(BufferPool(transport, 3, 8)) as pool:

        def work(number: int) -> None:
            for _ in range(50):
                buffer = pool.acquire(WAIT_SECONDS)
                buffer.view[0] = number
                if buffer.view[0] != number:
                    failures.append(number)
                pool.release(buffer)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures


def test_a_quarantined_buffer_is_not_lent_before_it_is_free(transport: InprocTransport) -> None:
    free = threading.Event()
    with closing(BufferPool(transport, 1, 64)) as pool:
        buffer = pool.acquire(0.0)
        pool.quarantine(buffer, free.is_set)
        with pytest.raises(NoFreeSlotError, match="1 in quarantine"):
            pool.acquire(0.05)
        waiter = Waiter(pool)
        free.set()  # nobody tells the pool
        assert waiter.join() is buffer
        pool.release(buffer)


def test_a_buffer_comes_back_once(transport: InprocTransport) -> None:
    with closing(BufferPool(transport, 1, 64)) as pool:
        buffer = pool.acquire(0.0)
        pool.release(buffer)
        for give_back in (pool.release, lambda b: pool.quarantine(b, lambda: True)):
            with pytest.raises(ValueError, match="not from this pool"):
                give_back(buffer)


def test_close_ends_waiting_and_frees_lent_buffers_when_they_come_back(
    transport: InprocTransport,
) -> None:
    pool = BufferPool(transport, 2, 64)
    first, second = pool.acquire(0.0), pool.acquire(0.0)
    waiter = Waiter(pool)
    assert pool.close() == 2
    waiter.join()
    assert "closed" in str(waiter.error)
    with pytest.raises(LeaseError, match="closed"):
        pool.acquire(0.0)
    pool.release(first)
    assert regions(transport) == 1
    threading.Thread(target=pool.release, args=(second,)).start()
    assert pool.close(WAIT_SECONDS) == 0
    assert regions(transport) == 0


def test_close_never_unmaps_what_may_still_be_written(transport: InprocTransport) -> None:
    free = threading.Event()
    pool = BufferPool(transport, 1, 64)
    buffer = pool.acquire(0.0)
    pool.quarantine(buffer, free.is_set)
    assert pool.close() == 1
    buffer.view[0] = 1
    assert regions(transport) == 1
    free.set()
    assert pool.close() == 0
    assert regions(transport) == 0


def test_a_pool_that_cannot_be_made_leaves_nothing(transport: InprocTransport) -> None:
    class SmallTransport(InprocTransport):
        def register(self, memory: memoryview | DeviceMemory) -> Region:
            if regions(self) == 2:
                raise RegistrationError("the memlock limit is reached")
            return super().register(memory)

    with closing(SmallTransport("small")) as small:
        with pytest.raises(RegistrationError, match="memlock"):
            BufferPool(small, 3, 64)
        assert regions(small) == 0
    with pytest.raises(RegistrationError, match="no memory") as raised:
        BufferPool(transport, 1, 1 << 60)
    assert "slots" in raised.value.hint()


@pytest.mark.parametrize(("count", "size_bytes"), [(0, 64), (1, 0)])
def test_refuses_sizes_that_make_no_sense(
    transport: InprocTransport, count: int, size_bytes: int
) -> None:
    with pytest.raises(ValueError, match="no sense"):
        BufferPool(transport, count, size_bytes)


def test_a_buffer_closes_while_someone_holds_a_view() -> None:
    buffer = allocate(100)
    held = buffer.view[10:20]
    buffer.close()
    buffer.close()
    held[0] = 1
    assert held[0] == 1
