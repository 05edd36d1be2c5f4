"""The transport that fails on purpose, over the in-process one."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from mx_artifacts.errors import PeerLostError, ReadTimeoutError
from mx_artifacts.memory.buffers import allocate
from mx_artifacts.runtime.clock import FakeClock
from mx_artifacts.transport.base import PendingRead, RemoteRange
from mx_artifacts.transport.faults import (
    Corrupt,
    Delay,
    Fault,
    FaultyTransport,
    LosePeer,
    Stall,
    Truncate,
)
from mx_artifacts.transport.inproc import InprocTransport

_numbers = itertools.count()


class World:
    """A source that serves "0123456789" and a target whose reads go through a plan."""

    def __init__(self, plan: dict[int, Fault]) -> None:
        number = next(_numbers)
        self.clock = FakeClock()
        self._source = InprocTransport(f"faulty-source-{number}")
        target = InprocTransport(f"faulty-target-{number}")
        self.transport = FaultyTransport(target, plan, self.clock)
        self.memory = allocate(10)
        served = allocate(10)
        served.view[:] = b"0123456789"
        self._served = self._source.register(served.view)
        self._region = self.transport.register(self.memory.view)
        self._peer = self.transport.connect(self._source.descriptor())

    def post(self) -> PendingRead:
        return self.transport.post_read(
            self._peer, [RemoteRange(self._served.addr, 10)], [(self._region, 0)]
        )

    def read(self) -> bytes:
        self.memory.view[:] = bytes(10)
        self.post().wait(1.0)
        return bytes(self.memory.view)

    def close(self) -> None:
        self.transport.close()
        self._source.close()


MakeWorld = Callable[[dict[int, Fault]], World]


@pytest.fixture
def world() -> Iterator[MakeWorld]:
    with ExitStack() as stack:
        yield lambda plan: stack.enter_context(closing(World(plan)))


def test_only_the_planned_reads_fail(world: MakeWorld) -> None:
    target = world({2: LosePeer()})
    assert target.read() == b"0123456789"
    with pytest.raises(PeerLostError):
        target.read()
    assert target.read() == b"0123456789"


def test_corrupts_one_byte_once(world: MakeWorld) -> None:
    read = (target := world({1: Corrupt(offset_bytes=3)})).post()
    assert read.done()
    read.wait(1.0)
    assert bytes(target.memory.view) == b"012\xcc456789"


def test_truncates(world: MakeWorld) -> None:
    assert world({1: Truncate(kept_bytes=4)}).read() == b"0123\0\0\0\0\0\0"


def test_delays_by_the_clock(world: MakeWorld) -> None:
    target = world({1: Delay(5.0)})
    read = target.post()
    with pytest.raises(ReadTimeoutError):
        read.wait(2.0)
    assert not read.done()
    read.wait(10.0)
    assert read.done()


def test_a_stalled_read_ends_when_it_is_let_go(world: MakeWorld) -> None:
    target = world({1: Stall()})
    read = target.post()
    with pytest.raises(ReadTimeoutError):
        read.wait(1000.0)
    assert not read.done()
    threading.Thread(target=target.transport.let_go).start()
    read.wait(1e9)
    assert read.done()
    assert bytes(target.memory.view) == b"0123456789"


def test_everything_else_is_passed_on(world: MakeWorld) -> None:
    transport = world({}).transport
    assert transport.agent_name.startswith("faulty-target")
    assert transport.properties.name == "inproc"
    assert transport.agent_name.encode() in transport.descriptor()
