"""What every transport of the registry must do; NIXL runs over UCX, also between two processes."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Protocol

import pytest

from mx_artifacts.errors import (
    ConfigurationError,
    MxArtifactsError,
    PeerLostError,
    RegistrationError,
    TransportError,
)
from mx_artifacts.memory.buffers import Buffer, allocate
from mx_artifacts.transport.base import (
    DeviceMemory,
    MemoryKind,
    Peer,
    Region,
    RemoteRange,
    Transport,
)
from mx_artifacts.transport.registry import create_transport, known_transports
from tests.support.peer_process import LocalPeer, pattern, peer_process

KIB = 1024
MIB = 1024 * KIB
WAIT_SECONDS = 60.0
"""Generous: only a failing test waits for it."""

_numbers = itertools.count(1)
_PLACES = [(name, place) for name in known_transports() for place in ("local", "process")]
PLACES = [p for p in _PLACES if p != ("inproc", "process")]


class ServingPeer(Protocol):
    @property
    def descriptor(self) -> bytes: ...
    @property
    def addresses(self) -> list[int]: ...
    def register(self, size_bytes: int, salt: int = 0) -> None: ...
    def kill(self) -> None: ...


def unique(name: str) -> str:
    return f"{name}-{next(_numbers)}"


@contextmanager
def local_peer(transport: str, name: str, size_bytes: int) -> Iterator[ServingPeer]:
    peer = LocalPeer(transport, name, size_bytes)
    try:
        yield peer
    finally:
        peer.stop()


class Reader:
    """A transport under test with one region to read into."""

    def __init__(self, transport: Transport, buffer: Buffer, region: Region) -> None:
        self.transport = transport
        self.view = buffer.view
        self.region = region

    def read(self, peer: Peer, addr: int, length: int, offset: int = 0) -> bytes:
        pending = self.transport.post_read(
            peer, [RemoteRange(addr, length)], [(self.region, offset)]
        )
        pending.wait(WAIT_SECONDS)
        assert pending.done()
        return bytes(self.view[offset : offset + length])


@pytest.fixture(scope="module", params=PLACES, ids="-".join)
def place(request: pytest.FixtureRequest) -> tuple[str, str]:
    place: tuple[str, str] = request.param
    return place


StartPeer = Callable[..., ServingPeer]


@pytest.fixture
def start_peer(place: tuple[str, str]) -> Iterator[StartPeer]:
    with ExitStack() as stack:

        def start(size_bytes: int = MIB, name: str | None = None) -> ServingPeer:
            transport, where = place
            make = peer_process if where == "process" else local_peer
            return stack.enter_context(make(transport, name or unique("peer"), size_bytes))

        yield start


@pytest.fixture(scope="module")
def shared_peer(place: tuple[str, str]) -> Iterator[ServingPeer]:
    """A peer that no test harms."""
    transport, where = place
    make = peer_process if where == "process" else local_peer
    with make(transport, unique("shared"), 64 * MIB) as peer:
        yield peer


@pytest.fixture(scope="module")
def reader(place: tuple[str, str]) -> Iterator[Reader]:
    transport = create_transport(place[0], unique("reader"))
    buffer = allocate(64 * MIB)
    region = transport.register(buffer.view)
    yield Reader(transport, buffer, region)
    region.close()
    transport.close()
    buffer.close()


@pytest.fixture
def connected(reader: Reader, shared_peer: ServingPeer) -> Iterator[Peer]:
    with closing(reader.transport.connect(shared_peer.descriptor)) as peer:
        yield peer


def test_reads_all_of_a_big_region(
    reader: Reader, shared_peer: ServingPeer, connected: Peer
) -> None:
    assert reader.read(connected, shared_peer.addresses[0], 64 * MIB) == pattern(64 * MIB)


def test_reads_many_ranges_of_any_size_to_any_offset(
    reader: Reader, shared_peer: ServingPeer, connected: Peer
) -> None:
    whole = pattern(64 * MIB)
    # (remote offset, length, local offset): a byte, unaligned, the last byte, scattered pages
    cuts = [(0, 1, 5), (4095, 2, 100), (64 * MIB - 1, 1, 200)]
    cuts += [(page * 40961, 300 + page, 4096 + page * 1000) for page in range(500)]
    reader.view[:] = bytes(len(reader.view))
    pending = reader.transport.post_read(
        connected,
        [RemoteRange(shared_peer.addresses[0] + at, length) for at, length, _ in cuts],
        [(reader.region, offset) for _, _, offset in cuts],
    )
    pending.wait(WAIT_SECONDS)
    expected = bytearray(len(reader.view))
    for at, length, offset in cuts:
        expected[offset : offset + length] = whole[at : at + length]
    assert reader.view == expected


def test_eight_threads_read_at_once(reader: Reader, shared_peer: ServingPeer) -> None:
    whole = pattern(64 * MIB)
    failures: list[str] = []

    def work(number: int) -> None:
        for step in range(10):
            offset = (number * 8 + step % 8) * MIB
            with closing(reader.transport.connect(shared_peer.descriptor)) as peer:
                got = reader.read(peer, shared_peer.addresses[0] + offset, MIB, offset)
            if got != whole[offset : offset + MIB]:
                failures.append(f"thread {number} at {offset}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_finished_reads_are_done_and_may_be_waited_for_again(
    reader: Reader, shared_peer: ServingPeer, connected: Peer
) -> None:
    pending = reader.transport.post_read(
        connected, [RemoteRange(shared_peer.addresses[0], 10)], [(reader.region, 0)]
    )
    pending.wait(WAIT_SECONDS)
    pending.wait(0.0)
    assert pending.done()


@pytest.mark.parametrize(
    ("sources", "targets"),
    [([], []), ([1], []), ([1], [0, 0]), ([0], [0]), ([2], [64 * MIB - 1]), ([1], [-1])],
)
def test_refuses_ranges_that_make_no_sense(
    reader: Reader, connected: Peer, sources: list[int], targets: list[int]
) -> None:
    with pytest.raises(ValueError, match=r"ranges|range|fit"):
        reader.transport.post_read(
            connected,
            [RemoteRange(4096, length) for length in sources],
            [(reader.region, offset) for offset in targets],
        )


@pytest.mark.parametrize(("shift", "length"), [(1, 64 * MIB), (-1, 10), (1 << 40, 1)])
def test_reading_outside_the_peers_regions_is_an_error(
    reader: Reader, shared_peer: ServingPeer, connected: Peer, shift: int, length: int
) -> None:
    with pytest.raises(TransportError, match="registered"):
        reader.read(connected, shared_peer.addresses[0] + shift, length)
    assert reader.read(connected, shared_peer.addresses[0], 4) == pattern(4)


def test_refuses_a_closed_target_region(
    reader: Reader, shared_peer: ServingPeer, connected: Peer
) -> None:
    buffer = allocate(KIB)
    region = reader.transport.register(buffer.view)
    region.close()
    region.close()
    with pytest.raises(ValueError, match="closed"):
        reader.transport.post_read(
            connected, [RemoteRange(shared_peer.addresses[0], 10)], [(region, 0)]
        )
    buffer.close()


@pytest.mark.parametrize("memory", [b"read-only", bytearray(), memoryview(bytearray(64))[::2]])
def test_refuses_to_register_what_cannot_be_written(reader: Reader, memory: bytes) -> None:
    with pytest.raises(ValueError, match="memory"):
        reader.transport.register(memoryview(memory))


def test_regions_registered_later_need_the_newer_descriptor(
    reader: Reader, start_peer: StartPeer
) -> None:
    serving = start_peer()
    with closing(reader.transport.connect(serving.descriptor)) as peer:
        serving.register(KIB, salt=3)
        with pytest.raises(TransportError, match="registered"):
            reader.read(peer, serving.addresses[1], KIB)
        with closing(reader.transport.connect(serving.descriptor)) as again:
            assert again.name == peer.name
            assert reader.read(again, serving.addresses[1], KIB) == pattern(KIB, 3)
            assert reader.read(peer, serving.addresses[0], KIB) == pattern(KIB)
        assert reader.read(peer, serving.addresses[1], KIB) == pattern(KIB, 3)


def test_a_reference_that_is_closed_leaves_the_others(
    reader: Reader, shared_peer: ServingPeer, connected: Peer
) -> None:
    other = reader.transport.connect(shared_peer.descriptor)
    other.close()
    other.close()
    assert reader.read(connected, shared_peer.addresses[0], 8) == pattern(8)


def test_damaged_descriptors_are_refused(reader: Reader, shared_peer: ServingPeer) -> None:
    good = shared_peer.descriptor
    for damaged in (b"", b"\0" * 100, b"{}", good[: len(good) // 2], b"[" * 10_000):
        with pytest.raises(TransportError, match="descriptor"):
            reader.transport.connect(damaged)
    with closing(reader.transport.connect(good)) as peer:
        assert reader.read(peer, shared_peer.addresses[0], 8) == pattern(8)


@pytest.mark.parametrize("warm", [True, False], ids=["used-before", "never-used"])
def test_a_peer_that_died_is_lost(
    place: tuple[str, str], reader: Reader, start_peer: StartPeer, warm: bool
) -> None:
    if place == ("nixl", "local"):
        pytest.skip(
            "UCX may read what is mapped in its own process, also after its agent was closed"
        )
    serving = start_peer()
    address, descriptor = serving.addresses[0], serving.descriptor
    with closing(reader.transport.connect(descriptor)) as peer:
        if warm:
            reader.read(peer, address, KIB)
        serving.kill()
        for _ in range(2):
            with pytest.raises(PeerLostError):
                reader.read(peer, address, KIB)


def test_a_peer_restarted_under_its_old_name_can_be_read(
    reader: Reader, start_peer: StartPeer
) -> None:
    name = unique("restarted")
    first = start_peer(name=name)
    with closing(reader.transport.connect(first.descriptor)) as peer:
        reader.read(peer, first.addresses[0], KIB)
    first.kill()
    second = start_peer(2 * KIB, name=name)
    with closing(reader.transport.connect(second.descriptor)) as peer:
        assert reader.read(peer, second.addresses[0], 2 * KIB) == pattern(2 * KIB)


def test_closing_twice_and_using_a_closed_agent(place: tuple[str, str]) -> None:
    transport = create_transport(place[0], unique("closed"))
    transport.close()
    transport.close()
    with pytest.raises(TransportError, match="closed"):
        transport.descriptor()


def test_names_itself(reader: Reader, place: tuple[str, str]) -> None:
    assert reader.transport.properties.name == place[0]
    assert reader.transport.agent_name.startswith("reader-")


def test_an_unknown_transport_names_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="stream, nixl, inproc") as raised:
        create_transport("carrier-pigeon", "a")
    assert isinstance(raised.value, MxArtifactsError)


def test_memory_says_what_it_is_made_of(reader: Reader) -> None:
    assert MemoryKind.DRAM in reader.transport.properties.memory_kinds
    assert (reader.region.kind, reader.region.device_id) == (MemoryKind.DRAM, 0)


def test_memory_of_a_gpu_that_cannot_be_had_is_refused_by_its_name(reader: Reader) -> None:
    nowhere = DeviceMemory(1 << 46, 4096, device_id=99)
    with pytest.raises(RegistrationError, match="VRAM") as refused:
        reader.transport.register(nowhere)
    assert "NIXL" in refused.value.hint() or "nixl" in refused.value.hint()


def test_a_read_of_two_kinds_at_once_is_refused(
    reader: Reader, shared_peer: ServingPeer, connected: Peer
) -> None:
    addr = shared_peer.addresses[0]
    ranges = [RemoteRange(addr, 10), RemoteRange(addr, 10, kind=MemoryKind.VRAM)]
    with pytest.raises(ValueError, match="one read cannot use both DRAM and VRAM"):
        reader.transport.post_read(connected, ranges, [(reader.region, 0), (reader.region, 10)])


def test_memory_of_a_kind_that_the_peer_did_not_register_is_not_read(
    reader: Reader, shared_peer: ServingPeer, connected: Peer
) -> None:
    wanted = RemoteRange(shared_peer.addresses[0], 10, kind=MemoryKind.VRAM)
    with pytest.raises(TransportError):
        reader.transport.post_read(connected, [wanted], [(reader.region, 0)]).wait(WAIT_SECONDS)
