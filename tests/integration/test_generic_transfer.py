"""The generic half of `transfer/` moves buffers that are no artifact, straight to where they stay.

A process of its own registers named buffers and says by a pipe where they are; the target reads
them into memory of its own through the pipeline, with no buffer in between.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import pytest

from mx_artifacts.core.digest import crc32c
from mx_artifacts.errors import ChunkChecksumError, PeerLostError
from mx_artifacts.memory.buffers import Buffer
from mx_artifacts.observability.events import ignore_events
from mx_artifacts.runtime.clock import SYSTEM_CLOCK
from mx_artifacts.runtime.deadline import Deadline
from mx_artifacts.transfer.base import Destination, SourceAddress
from mx_artifacts.transfer.engine import SourceSupply, TransferLimits, receive
from mx_artifacts.transfer.source_failures import SourceFailures
from mx_artifacts.transfer.wait_policy import WaitPolicy
from mx_artifacts.transport.base import PendingRead, Region, RemoteRange, Transport
from mx_artifacts.transport.registry import create_transport

SIZES = {"bias": 17, "embedding": 3 << 20, "layer.0": 1 << 20, "layer.1": 1 << 20}


@dataclass(frozen=True, eq=False)
class NamedBuffer:
    """What is wanted: a buffer by its name, its size and its CRC32C."""

    name: str
    length: int
    checksum: int


@dataclass
class Memory:
    """The sink: registered memory for every buffer, which nothing else fills."""

    transport: Transport
    buffers: dict[str, Buffer] = field(default_factory=dict)
    regions: dict[str, Region] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)
    waits = False

    def add(self, name: str, length: int) -> None:
        self.buffers[name] = buffer = Buffer(length)
        self.regions[name] = self.transport.register(buffer.view)

    def destination_of(self, extent: NamedBuffer) -> Destination:
        return Destination(self.regions[extent.name], 0, self.buffers[extent.name].view)

    def damage(self, extent: NamedBuffer, stored: Destination) -> str:
        is_intact = crc32c(stored.view) == extent.checksum
        return "" if is_intact else f"{extent.name} is not what was published"

    def write(self, extent: NamedBuffer, stored: Destination) -> None:
        assert stored.view.obj is self.buffers[extent.name].view.obj, "it was copied"
        self.written.append(extent.name)

    def keep_until(self, is_done: Callable[[], bool]) -> None:
        raise AssertionError("every read of this test ends")

    def stop(self) -> None:
        pass


class Process:
    """The source: another process, asked by a pipe. It can be read from while the pipe is open."""

    is_complete = True
    is_detached = False

    def __init__(self, address: SourceAddress, pipe: Connection, transport: Transport) -> None:
        self.address = address
        self._pipe, self._transport = pipe, transport
        self._ranges: Mapping[str, RemoteRange] = {}

    def open(self, *, serves_on: bool) -> None:
        try:
            self._pipe.send("where")
            descriptor, ranges = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise PeerLostError(f"{self.address.endpoint} is gone: {error}") from error
        self._peer = self._transport.connect(descriptor)
        self._ranges = {name: RemoteRange(*each) for name, each in ranges.items()}

    def refresh(self) -> bool:
        return False

    def has(self, extent: NamedBuffer) -> bool:
        return extent.name in self._ranges

    def batch_of(self, first: NamedBuffer, waiting: Sequence[NamedBuffer]) -> list[NamedBuffer]:
        return [first]

    @contextmanager
    def reader(self, first: NamedBuffer, wait: WaitPolicy) -> Iterator[Process]:
        self._wait = wait
        yield self

    def read(self, extent: NamedBuffer, into: Destination, pending: list[PendingRead]) -> int:
        target = [(into.region, into.offset)]
        read = self._transport.post_read(self._peer, [self._ranges[extent.name]], target)
        pending.append(read)
        self._wait.finish(read)
        return extent.length

    def release(self) -> bool:
        return True

    def still_holds(self) -> bool:
        return True

    def check_session(self) -> None:
        pass

    def report_damage(self, extent: NamedBuffer) -> str:
        return ""

    def check_answers(self, timeout_seconds: float | None = None) -> None:
        pass

    def hang_up(self) -> None:
        pass

    def close(self) -> None:
        self._ranges = {}


def serve(pipe: Connection, contents: Mapping[str, bytes]) -> None:
    """Register `contents` and say where they are, until the pipe closes."""
    transport = create_transport("nixl", f"generic-{os.getpid()}-{uuid.uuid4().hex[:8]}")
    buffers, ranges = [], {}
    for name, content in contents.items():
        buffer = Buffer(len(content))
        buffer.view[:] = content
        region = transport.register(buffer.view)
        buffers.append(buffer)
        ranges[name] = (region.addr, region.length)
    while True:
        try:
            pipe.recv()
            pipe.send((transport.descriptor(), ranges))
        except EOFError:
            os._exit(0)


@contextmanager
def serving(contents: Mapping[str, bytes]) -> Iterator[Connection]:
    spawning = multiprocessing.get_context("spawn")
    here, there = spawning.Pipe()
    process = spawning.Process(target=serve, args=(there, contents), daemon=True)
    process.start()
    there.close()
    try:
        yield here
    finally:
        here.close()
        process.join(30)
        process.kill()


@pytest.fixture
def agent() -> Iterator[Transport]:
    transport = create_transport("nixl", f"generic-{os.getpid()}-{uuid.uuid4().hex[:8]}")
    yield transport
    transport.close()


def fetch(agent: Transport, pipe: Connection, wanted: Sequence[NamedBuffer]) -> tuple[Memory, Any]:
    memory = Memory(agent)
    for extent in wanted:
        memory.add(extent.name, extent.length)
    address = SourceAddress("a process", "weights")
    supply = SourceSupply(lambda each: Process(each, pipe, agent), others=[address])
    limits = TransferLimits(timeout_seconds=60, max_inflight=2)
    delivered = receive(
        wanted,
        supply,
        memory,
        agent,
        limits,
        Deadline(limits.timeout_seconds, SYSTEM_CLOCK),
        SourceFailures(ignore_events),
        events=ignore_events,
        clock=SYSTEM_CLOCK,
        rng=random.Random(1),
    )
    return memory, delivered


def test_named_buffers_arrive_where_they_shall_stay(agent: Transport) -> None:
    contents = {name: os.urandom(size) for name, size in SIZES.items()}
    wanted = [NamedBuffer(name, len(each), crc32c(each)) for name, each in contents.items()]
    with serving(contents) as pipe:
        memory, delivered = fetch(agent, pipe, wanted)
    assert {name: bytes(buffer.view) for name, buffer in memory.buffers.items()} == contents
    assert sorted(memory.written) == sorted(SIZES)
    assert delivered == {"a process": sum(SIZES.values())}


def test_a_buffer_that_is_not_what_was_published_ends_the_transfer(agent: Transport) -> None:
    contents = {name: os.urandom(size) for name, size in SIZES.items()}
    wanted = [NamedBuffer(name, len(each), 1) for name, each in contents.items()]
    with serving(contents) as pipe, pytest.raises(ChunkChecksumError, match="not what was"):
        fetch(agent, pipe, wanted)


def test_the_error_names_a_source_that_has_ended(agent: Transport) -> None:
    with serving({}) as pipe:
        pass
    with pytest.raises(PeerLostError, match="a process"):
        fetch(agent, pipe, [NamedBuffer("bias", 17, 0)])
