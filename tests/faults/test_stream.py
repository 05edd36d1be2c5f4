"""The stream transport against peers that are hostile, silent or slow; both ends are processes."""

from __future__ import annotations

import os
import random
import resource
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress

import pytest

from mx_artifacts.errors import PeerLostError, ReadTimeoutError, TransportError
from mx_artifacts.memory.buffers import Buffer, allocate
from mx_artifacts.transport.base import Peer, RemoteRange, Transport
from mx_artifacts.transport.registry import create_transport
from mx_artifacts.transport.stream import reads, sockets
from mx_artifacts.transport.stream.frames import (
    GREETING_BYTES,
    HELLO_BYTES,
    MAGIC,
    NONCE_BYTES,
    Status,
    StreamDescriptor,
    decode_greeting,
    encode_greeting,
    encode_hello,
)
from mx_artifacts.transport.stream.transport import StreamTransport
from tests.support.peer_process import PeerProcess, pattern, peer_process

KIB = 1024
MIB = 1024 * KIB
SIZE_BYTES = 8 * MIB
WAIT_SECONDS = 60.0
"""Generous: only a failing test waits for it."""
ANSWERED_SECONDS = 20.0
"""Maximum time for a source to give up a peer that says nothing (5 s), on a loaded machine."""


class Reader:
    """An honest target."""

    def __init__(self, transport: Transport, buffer: Buffer) -> None:
        self.transport = transport
        self.view = buffer.view
        self.region = transport.register(buffer.view)

    def read(self, peer: Peer, addr: int, length: int, wait_seconds: float = WAIT_SECONDS) -> bytes:
        read = self.transport.post_read(peer, [RemoteRange(addr, length)], [(self.region, 0)])
        read.wait(wait_seconds)
        return bytes(self.view[:length])


@pytest.fixture
def reader() -> Iterator[Reader]:
    with closing(create_transport("stream", "honest")) as transport:
        buffer = allocate(SIZE_BYTES)
        reader = Reader(transport, buffer)
        yield reader
        reader.region.close()
        buffer.close()


@pytest.fixture(scope="module")
def source() -> Iterator[PeerProcess]:
    """A source in a process of its own that no test harms, whatever it is sent."""
    with peer_process("stream", "source", SIZE_BYTES) as source:
        yield source


def descriptor_of(source: PeerProcess) -> StreamDescriptor:
    return StreamDescriptor.decode(source.descriptor)


def dial(
    source: PeerProcess, sent: bytes = b"", *, token: bytes | None = None, serial: int | None = None
) -> socket.socket:
    """Connect, prove to have a token (by default the source's), then send more."""
    known = descriptor_of(source)
    connection = connect(source)
    nonce = decode_greeting(received(connection, GREETING_BYTES))
    serial = known.serial if serial is None else serial
    connection.sendall(encode_hello(serial, token or known.token, nonce) + sent)
    return connection


def connect(source: PeerProcess) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", descriptor_of(source).port))
    connection.settimeout(ANSWERED_SECONDS)
    return connection


def received(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        assert more, "it hung up"
        data += more
    return data


def answer(connection: socket.socket) -> bytes:
    """Return all that comes until the source hangs up."""
    received = b""
    try:
        while data := connection.recv(65536):
            received += data
    except ConnectionError:
        pass
    return received


def request(*ranges: tuple[int, int]) -> bytes:
    packed = b"".join(struct.pack(">QQ", *each) for each in ranges)
    return struct.pack(">H", len(ranges)) + packed


def assert_serves(reader: Reader, source: PeerProcess) -> None:
    with closing(reader.transport.connect(source.descriptor)) as peer:
        assert reader.read(peer, source.addresses[0], SIZE_BYTES) == pattern(SIZE_BYTES)


# --- what a source is sent -----------------------------------------------------------------------


def test_a_token_grants_what_it_was_made_for_and_no_other_token_does(source: PeerProcess) -> None:
    known, at = descriptor_of(source), source.addresses[0]
    with dial(source, request((at, 100))) as connection:
        assert received(connection, 101) == bytes((Status.OK,)) + pattern(100)
    forged = bytes(byte ^ 1 for byte in known.token)
    for token, serial in ((forged, known.serial), (known.token, known.serial + 1), (forged, 0)):
        with dial(source, request((at, 100)), token=token, serial=serial) as connection:
            assert answer(connection) == bytes((Status.UNKNOWN_TOKEN,))


def test_a_hello_that_was_overheard_is_of_no_use(source: PeerProcess) -> None:
    known = descriptor_of(source)
    with connect(source) as first, connect(source) as second:
        nonce = decode_greeting(received(first, GREETING_BYTES))
        assert decode_greeting(received(second, GREETING_BYTES)) != nonce
        second.sendall(encode_hello(known.serial, known.token, nonce))
        assert answer(second) == bytes((Status.UNKNOWN_TOKEN,))


def test_no_address_of_the_process_is_readable_but_those_that_were_registered(
    source: PeerProcess,
) -> None:
    """The addresses that NIXL would follow: of mapped memory, stacks and the interpreter."""
    at = source.addresses[0]
    with open(f"/proc/{source.process.pid}/maps") as maps:
        mapped = [int(line.partition("-")[0], 16) for line in maps]
    assert all(at != address for address in mapped)
    tried = [(address, 8) for address in mapped]
    tried += [(at - 1, 2), (at, SIZE_BYTES + 1), (at + SIZE_BYTES, 1), (at, 0), (0, 1)]
    tried += [(2**64 - 1, 2**64 - 1), (at, 2**64 - 1), (2**64 - 8, 8)]
    for each in tried:
        with dial(source, request(each)) as connection:
            assert answer(connection) == bytes((Status.NOT_REGISTERED,)), each


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(100),
        b"\x16\x03\x01" + bytes(200),
        bytes(100_000),
        b"\xff" * 100_000,
    ],
    ids=["http", "grpc", "tls", "zeros", "ones"],
)
def test_other_protocols_are_hung_up_on(source: PeerProcess, reader: Reader, sent: bytes) -> None:
    with connect(source) as connection:
        received(connection, GREETING_BYTES)
        with suppress(ConnectionError):
            connection.sendall(sent)
        assert answer(connection) == b""
    assert_serves(reader, source)


@pytest.mark.parametrize("count", [0, 1025, 65535])
def test_requests_for_too_many_ranges_are_hung_up_on(source: PeerProcess, count: int) -> None:
    with dial(source, struct.pack(">H", count)) as connection:
        assert answer(connection) == b""


def test_requests_that_do_not_wait_for_the_answer_are_hung_up_on(source: PeerProcess) -> None:
    with dial(source, 2 * request((source.addresses[0], 1))) as connection:
        assert answer(connection) == b""


def test_random_bytes_do_no_harm(source: PeerProcess, reader: Reader) -> None:
    chance = random.Random(12)
    known, at = descriptor_of(source), source.addresses[0]
    good = request((at, 1000), (at + 5, 77))
    for number in range(1500):
        with connect(source) as connection:
            nonce = decode_greeting(received(connection, GREETING_BYTES))
            hello = encode_hello(known.serial, known.token, nonce)
            with suppress(ConnectionError):
                if number % 2:
                    connection.sendall(hello + changed(good, chance))
                else:
                    connection.sendall(changed(hello + good, chance))
    assert source.process.poll() is None
    assert_serves(reader, source)


def changed(good: bytes, chance: random.Random) -> bytes:
    """Return bytes with some of them changed, cut off somewhere."""
    sent = bytearray(good)
    for _ in range(chance.randrange(1, 6)):
        sent[chance.randrange(len(sent))] = chance.randrange(256)
    return bytes(sent[: chance.randrange(len(sent) + 1)])


# --- peers that take room, and leave it unused ---------------------------------------------------


@contextmanager
def few_descriptors_source(count: int) -> Iterator[PeerProcess]:
    """Start a source that may open so many files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
        try:
            source = stack.enter_context(peer_process("stream", "few", SIZE_BYTES))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        yield source


@contextmanager
def crowd(source: PeerProcess, count: int, dialled: Callable[[], socket.socket]) -> Iterator[None]:
    """Connect so many times, and say no more than `dialled` does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count + 200:
        pytest.skip(f"{count} connections need more file descriptors than {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + 200), hard))
    connections: list[socket.socket] = []
    try:
        connections += (dialled() for _ in range(count))
        yield
    finally:
        for connection in connections:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("greets", [False, True], ids=["silent", "idle"])
def test_1100_connections_do_not_silence_a_source_of_1024_descriptors(
    reader: Reader, greets: bool
) -> None:
    with few_descriptors_source(1024) as source:
        with crowd(source, 1100, lambda: dial(source) if greets else connect(source)):
            assert_serves(reader, source)
            assert source.open_file_count() < 1000
        assert_serves(reader, source)
        assert source.process.poll() is None


def test_readers_that_take_no_bytes_do_not_delay_others(reader: Reader) -> None:
    with few_descriptors_source(1024) as source:
        wanted = request((source.addresses[0], SIZE_BYTES))
        with crowd(source, 200, lambda: dial(source, wanted)):
            assert_serves(reader, source)


def test_a_source_closes_silent_connections(source: PeerProcess) -> None:
    for sent in (b"", MAGIC, MAGIC + bytes(10)):
        with connect(source) as connection:
            received(connection, GREETING_BYTES)
            connection.sendall(sent)
            assert answer(connection) == b""
    with dial(source) as connection:  # it has greeted, so it may wait; but not within a request
        time.sleep(0.2)
        connection.sendall(b"\0\1abc")
        assert answer(connection) == b""


# --- what a target is sent -----------------------------------------------------------------------

Serve = Callable[[socket.socket], None]


@contextmanager
def false_source(serve: Serve) -> Iterator[bytes]:
    """Listen as a source would, and do something else; give a descriptor."""
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0), backlog=50) as listener:
        listener.settimeout(0.1)

        def accept() -> None:
            with ExitStack() as open_ones:
                while not stop.is_set():
                    try:
                        connection, _ = listener.accept()
                    except TimeoutError:
                        continue
                    open_ones.enter_context(connection)
                    connection.settimeout(WAIT_SECONDS)
                    handlers.append(threading.Thread(target=quietly, args=(connection,)))
                    handlers[-1].start()
                for handler in handlers:
                    handler.join(WAIT_SECONDS)

        def quietly(connection: socket.socket) -> None:
            with suppress(OSError):
                serve(connection)

        handlers: list[threading.Thread] = []
        accepting = threading.Thread(target=accept)
        accepting.start()
        port = listener.getsockname()[1]
        try:
            yield StreamDescriptor(port, 7, 1, os.urandom(16)).encode()
        finally:
            stop.set()
            accepting.join(2 * WAIT_SECONDS)


def after_request(*answers: bytes, pause_seconds: float = 0.0) -> Serve:
    def serve(connection: socket.socket) -> None:
        connection.sendall(encode_greeting(bytes(NONCE_BYTES)))
        received(connection, HELLO_BYTES)
        connection.recv(1000)
        for each in answers:
            connection.sendall(each)
            time.sleep(pause_seconds)
        connection.close()

    return serve


@pytest.mark.parametrize(
    ("answers", "error", "what"),
    [
        ([b""], PeerLostError, "is lost"),
        ([b"\0"], PeerLostError, "in the middle"),
        ([b"\0" + b"x" * 999], PeerLostError, "in the middle"),
        ([b"\1"], TransportError, "not in any region"),
        ([b"\2"], PeerLostError, "not the same as before"),
        ([b"HTTP/1.1 400 Bad Request\r\n\r\n"], TransportError, "does not speak"),
        ([b"\xff" * 5000], TransportError, "does not speak"),
    ],
)
def test_answers_that_are_none(
    reader: Reader, source: PeerProcess, answers: list[bytes], error: type[Exception], what: str
) -> None:
    with (
        false_source(after_request(*answers)) as descriptor,
        closing(reader.transport.connect(descriptor)) as peer,
        pytest.raises(error, match=what),
    ):
        reader.read(peer, 4096, 1000)
    assert_serves(reader, source)


def test_more_bytes_than_were_asked_for_go_nowhere(reader: Reader, source: PeerProcess) -> None:
    reader.view[1000:2000] = bytes(1000)
    with (
        false_source(after_request(b"\0" + b"x" * 1000, b"y" * 1000)) as descriptor,
        closing(reader.transport.connect(descriptor)) as peer,
    ):
        assert reader.read(peer, 4096, 1000) == b"x" * 1000
        time.sleep(0.2)  # the rest is here, and no answer: the next read connects anew
        assert reader.read(peer, 4096, 1000) == b"x" * 1000
    assert bytes(reader.view[1000:2000]) == bytes(1000)


def test_a_slow_drip_ends_in_time_and_leaves_the_memory_free(
    reader: Reader, source: PeerProcess
) -> None:
    drip = after_request(b"\0", *[b"x"] * 50, pause_seconds=0.1)
    with false_source(drip) as descriptor, closing(reader.transport.connect(descriptor)) as peer:
        read = reader.transport.post_read(peer, [RemoteRange(4096, 1000)], [(reader.region, 0)])
        with pytest.raises(ReadTimeoutError):
            read.wait(0.5)
        assert not read.done()
        assert_serves(reader, source)  # others are read meanwhile
        reader.transport.close()
        assert read.done()
        with pytest.raises(TransportError, match="closed"):
            read.wait(WAIT_SECONDS)


def test_a_source_that_never_answers_is_lost(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "PROGRESS_SECONDS", 0.5)

    def never(connection: socket.socket) -> None:
        connection.sendall(encode_greeting(bytes(NONCE_BYTES)))
        while connection.recv(1000):
            pass

    with (
        false_source(never) as descriptor,
        closing(reader.transport.connect(descriptor)) as peer,
        pytest.raises(PeerLostError, match="nothing for"),
    ):
        reader.read(peer, 4096, 1000)


def test_a_port_that_a_firewall_drops_is_given_up(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listener whose queue is full drops what comes, as a firewall does."""
    monkeypatch.setattr(sockets, "CONNECT_SECONDS", 0.5)
    with socket.socket() as listener, ExitStack() as waiting:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        for _ in range(2):
            queued = waiting.enter_context(socket.socket())
            queued.setblocking(False)
            queued.connect_ex(("127.0.0.1", port))
        time.sleep(0.1)
        with pytest.raises(PeerLostError, match="cannot be reached: no answer in"):
            reader.transport.connect(StreamDescriptor(port, 7, 1, os.urandom(16)).encode())


def test_a_target_sends_nothing_to_a_service_that_is_no_source(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a descriptor could make a target say what its author likes to, say, a database."""
    monkeypatch.setattr(sockets, "CONNECT_SECONDS", 0.5)
    said: list[bytes] = []
    with (
        false_source(lambda connection: said.append(connection.recv(1000))) as descriptor,
        pytest.raises(PeerLostError, match="no answer in"),
    ):
        reader.transport.connect(descriptor)
    assert said == [b""]
    banner = b"220 mail.example.com ESMTP\r\n"
    with (
        false_source(lambda connection: connection.sendall(banner)) as descriptor,
        pytest.raises(TransportError, match="does not speak"),
    ):
        reader.transport.connect(descriptor)


# --- sources that end, or stand still ------------------------------------------------------------


def test_a_source_killed_in_the_middle_is_lost_and_another_is_read(
    reader: Reader, source: PeerProcess
) -> None:
    with (
        peer_process("stream", "dies", SIZE_BYTES) as dying,
        closing(reader.transport.connect(dying.descriptor)) as peer,
    ):
        reader.read(peer, dying.addresses[0], KIB)
        ranges = [(dying.addresses[0], SIZE_BYTES)]
        dying.send(signal.SIGSTOP)
        read = reader.transport.post_read(
            peer, [RemoteRange(*each) for each in ranges], [(reader.region, 0)]
        )
        with pytest.raises(ReadTimeoutError):
            read.wait(0.2)
        dying.kill()
        with pytest.raises(PeerLostError):
            read.wait(WAIT_SECONDS)
        assert read.done()
    assert_serves(reader, source)


def test_a_source_that_was_stopped_for_a_while_continues(reader: Reader) -> None:
    with (
        peer_process("stream", "stopped", SIZE_BYTES) as stopped,
        closing(reader.transport.connect(stopped.descriptor)) as peer,
    ):
        stopped.send(signal.SIGSTOP)
        threading.Timer(1.0, stopped.send, [signal.SIGCONT]).start()
        got = reader.read(peer, stopped.addresses[0], SIZE_BYTES)
    assert got == pattern(SIZE_BYTES)


def test_memory_that_is_deregistered_while_it_is_sent_stays_until_it_was_sent() -> None:
    with (
        closing(StreamTransport("serving")) as serving,
        closing(StreamTransport("reading")) as reading,
    ):
        buffer, into = allocate(64 * MIB), allocate(64 * MIB)
        buffer.view[:] = pattern(64 * MIB)
        region, target = serving.register(buffer.view), reading.register(into.view)
        with closing(reading.connect(serving.descriptor())) as peer:
            wanted = [RemoteRange(region.addr, 64 * MIB)]
            read = reading.post_read(peer, wanted, [(target, 0)])
            with pytest.raises(ReadTimeoutError):
                read.wait(0.0)
            time.sleep(0.3)  # the source has its views
            region.close()
            buffer.close()
            read.wait(WAIT_SECONDS)
            assert bytes(into.view) == pattern(64 * MIB)
            with pytest.raises(TransportError, match="not in any region"):
                reading.post_read(peer, wanted, [(target, 0)]).wait(WAIT_SECONDS)
        target.close()
        into.close()


def test_a_child_of_fork_closes_without_harm_to_its_parent(source: PeerProcess) -> None:
    with closing(StreamTransport("parent")) as parent, closing(StreamTransport("target")) as target:
        buffer, into = allocate(KIB), allocate(KIB)
        buffer.view[:] = pattern(KIB)
        region, mine = parent.register(buffer.view), target.register(into.view)
        with closing(target.connect(parent.descriptor())) as peer:
            wanted = [RemoteRange(region.addr, KIB)]
            target.post_read(peer, wanted, [(mine, 0)]).wait(WAIT_SECONDS)
            child = os.fork()
            if child == 0:
                try:
                    parent.close()
                    target.close()
                finally:
                    os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            into.view[:] = bytes(KIB)
            target.post_read(peer, wanted, [(mine, 0)]).wait(WAIT_SECONDS)
            assert bytes(into.view) == pattern(KIB)
        for each in (region, mine):
            each.close()
