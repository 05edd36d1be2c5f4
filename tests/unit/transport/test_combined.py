"""NIXL and the stream as one: which is used for whom, and when the other one takes over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from mx_artifacts.errors import OtherTransportError, ReadTimeoutError
from mx_artifacts.memory.buffers import allocate
from mx_artifacts.transport import combined
from mx_artifacts.transport.base import Peer, RemoteRange, Transport
from mx_artifacts.transport.combined import CombinedTransport
from mx_artifacts.transport.faults import FaultyTransport, LosePeer, Stall
from mx_artifacts.transport.inproc import InprocTransport
from mx_artifacts.transport.stream.transport import StreamTransport

KIB = 1024
HOST = "127.0.0.1"


class Node:
    """A combined transport over inproc, in the place of NIXL, with one buffer."""

    def __init__(self, name: str, content: bytes) -> None:
        self.preferred = FaultyTransport(InprocTransport(name), {})
        self.transport = CombinedTransport(self.preferred, StreamTransport(name))
        self.buffer = allocate(KIB)
        self.buffer.view[: len(content)] = content
        self.region = self.transport.register(self.buffer.view)

    def close(self) -> None:
        self.region.close()
        self.transport.close()
        self.buffer.close()

    def read(self, peer: Peer, addr: int, wait_seconds: float = 20.0) -> bytes:
        wanted = [RemoteRange(addr, 5)]
        self.transport.post_read(peer, wanted, [(self.region, 10)]).wait(wait_seconds)
        return bytes(self.buffer.view[10:15])


@pytest.fixture
def source() -> Iterator[Node]:
    with closing(Node("combined-source", b"hello")) as node:
        yield node


@pytest.fixture
def target() -> Iterator[Node]:
    with closing(Node("combined-target", b"")) as node:
        yield node


def test_a_peer_is_read_by_the_transport_that_its_descriptor_is_for(
    source: Node, target: Node
) -> None:
    descriptors = source.transport.descriptors()
    assert list(descriptors) == list(target.transport.names(HOST)) == ["inproc", "stream"]
    for descriptor in descriptors.values():
        with closing(target.transport.connect(descriptor, HOST)) as peer:
            target.buffer.view[10:15] = bytes(5)
            assert target.read(peer, source.region.addr) == b"hello"


def test_a_process_that_has_the_stream_only_reads_from_one_that_has_both(source: Node) -> None:
    with closing(StreamTransport("stream-only")) as alone:
        transport: Transport = alone
        buffer = allocate(KIB)
        region = transport.register(buffer.view)
        with closing(transport.connect(source.transport.descriptors()["stream"], HOST)) as peer:
            wanted = [RemoteRange(source.region.addr, 5)]
            transport.post_read(peer, wanted, [(region, 0)]).wait(20.0)
        assert bytes(buffer.view[:5]) == b"hello"
        region.close()
        buffer.close()


def test_a_peer_that_the_preferred_one_loses_is_read_by_the_stream_from_then_on(
    source: Node, target: Node
) -> None:
    target.preferred._plan = {1: LosePeer()}
    descriptors = source.transport.descriptors()
    with (
        closing(target.transport.connect(descriptors["inproc"], HOST)) as peer,
        pytest.raises(OtherTransportError, match="trying the stream transport"),
    ):
        target.read(peer, source.region.addr)
    assert target.transport.names(HOST) == ("stream",)
    assert target.transport.names("10.0.0.9") == ("inproc", "stream")
    assert target.transport.names() == ("inproc", "stream")
    with closing(target.transport.connect(descriptors["stream"], HOST)) as peer:
        assert target.read(peer, source.region.addr) == b"hello"


def test_a_first_read_that_stalls_is_left_to_the_stream_a_later_one_is_not(
    source: Node, target: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(combined, "FIRST_READ_SECONDS", 0.05)
    target.preferred._plan = {2: Stall(), 3: Stall()}
    descriptor = source.transport.descriptors()["inproc"]
    with closing(target.transport.connect(descriptor, HOST)) as peer:
        assert target.read(peer, source.region.addr) == b"hello"
        with pytest.raises(ReadTimeoutError):
            target.read(peer, source.region.addr, wait_seconds=0.1)
    with (
        closing(target.transport.connect(descriptor, HOST)) as peer,
        pytest.raises(OtherTransportError, match="no byte came"),
    ):
        target.read(peer, source.region.addr, wait_seconds=0.1)
    target.preferred.let_go()


def test_a_descriptor_of_neither_is_refused_and_the_stream_is_tried(target: Node) -> None:
    with pytest.raises(OtherTransportError, match="descriptor"):
        target.transport.connect(b"?" * 50, HOST)
    assert target.transport.names(HOST) == ("stream",)
