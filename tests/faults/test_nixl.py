"""NIXL over UCX when the peer, the network or the start goes wrong; peers are real processes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest

from mx_artifacts.errors import (
    NoFreeSlotError,
    PeerLostError,
    ReadTimeoutError,
    TransportUnavailableError,
)
from mx_artifacts.memory.pool import BufferPool, PooledBuffer
from mx_artifacts.transport.base import Peer, PendingRead, RemoteRange, Transport
from mx_artifacts.transport.nixl_transport import NixlTransport
from mx_artifacts.transport.registry import create_transport
from tests.support.child import ended, our_environment
from tests.support.peer_process import PeerProcess, pattern, peer_process

KIB = 1024
MIB = 1024 * KIB
WAIT_SECONDS = 60.0


@pytest.fixture(scope="module")
def transport() -> Iterator[Transport]:
    with closing(create_transport("nixl", "fault-reader")) as transport:
        yield transport


@contextmanager
def one_buffer(transport: Transport, size_bytes: int) -> Iterator[BufferPool]:
    pool = BufferPool(transport, 1, size_bytes)
    try:
        yield pool
    finally:
        assert pool.close(WAIT_SECONDS) == 0


def post(
    transport: Transport, peer: Peer, serving: PeerProcess, buffer: PooledBuffer
) -> PendingRead:
    wanted = RemoteRange(serving.addresses[0], buffer.region.length)
    return transport.post_read(peer, [wanted], [(buffer.region, 0)])


@contextmanager
def stopped_peer_process(name: str, size_bytes: int) -> Iterator[PeerProcess]:
    """Start a peer and stop it before anybody connects: a read that needs no peer later waits."""
    with peer_process("nixl", name, size_bytes) as serving:
        serving.send(signal.SIGSTOP)
        os.waitid(os.P_PID, serving.process.pid, os.WSTOPPED | os.WNOWAIT)
        yield serving


def test_a_stopped_peer_times_out_and_its_buffer_stays_quarantined(transport: Transport) -> None:
    with (
        stopped_peer_process("stopped", MIB) as serving,
        one_buffer(transport, MIB) as pool,
        closing(transport.connect(serving.descriptor)) as peer,
    ):
        buffer = pool.acquire(0.0)
        read = post(transport, peer, serving, buffer)
        with pytest.raises(ReadTimeoutError, match="stopped"):
            read.wait(0.2)
        pool.quarantine(buffer, read.done)
        with pytest.raises(NoFreeSlotError, match="1 in quarantine"):
            pool.acquire(0.1)
        serving.send(signal.SIGCONT)
        again = pool.acquire(WAIT_SECONDS)
        assert again.view == pattern(MIB)
        pool.release(again)


def test_a_stopped_peer_that_is_killed_frees_the_buffer(transport: Transport) -> None:
    with (
        stopped_peer_process("stopped-killed", MIB) as serving,
        one_buffer(transport, MIB) as pool,
        closing(transport.connect(serving.descriptor)) as peer,
    ):
        buffer = pool.acquire(0.0)
        read = post(transport, peer, serving, buffer)
        pool.quarantine(buffer, read.done)
        serving.kill()
        pool.release(pool.acquire(WAIT_SECONDS))
        with pytest.raises(PeerLostError):
            read.wait(0.0)


def test_a_peer_killed_in_the_middle_of_a_read_is_lost(transport: Transport) -> None:
    """Over TCP, since on one host a read of shared memory ends while it is posted."""
    with (
        peer_process("nixl", "killed", 256 * MIB, UCX_TLS="tcp") as serving,
        one_buffer(transport, 256 * MIB) as pool,
        closing(transport.connect(serving.descriptor)) as peer,
    ):
        buffer = pool.acquire(0.0)
        read = post(transport, peer, serving, buffer)
        serving.kill()
        with pytest.raises(PeerLostError, match="killed"):
            read.wait(WAIT_SECONDS)
        assert read.done()
        pool.release(buffer)


def test_connecting_again_and_again_opens_no_more_files(transport: Transport) -> None:
    with peer_process("nixl", "reconnect", KIB) as serving, one_buffer(transport, KIB) as pool:
        counts = set()
        for turn in range(30):
            with closing(transport.connect(serving.descriptor)) as peer:
                buffer = pool.acquire(0.0)
                post(transport, peer, serving, buffer).wait(WAIT_SECONDS)
                pool.release(buffer)
            if turn:  # the first one made the connection
                counts.add((len(os.listdir("/proc/self/fd")), serving.open_file_count()))
    assert len(counts) == 1


def test_agents_without_reads_are_not_kept_for_ever(
    transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mx_artifacts.transport.nixl_transport.MAX_IDLE_PEERS", 1)
    names = ["idle-a", "idle-b", "idle-c"]
    with one_buffer(transport, KIB) as pool, ExitStack() as stack:
        for name in names:
            serving = stack.enter_context(peer_process("nixl", name, KIB))
            with closing(transport.connect(serving.descriptor)) as peer:
                buffer = pool.acquire(0.0)
                post(transport, peer, serving, buffer).wait(WAIT_SECONDS)
                pool.release(buffer)
    assert isinstance(transport, NixlTransport)
    kept = [name for name in names if any(name in each for each in transport._peers.connected())]
    assert kept == names[1:]


def test_two_agents_of_the_same_name_in_use_are_distinguished(transport: Transport) -> None:
    with (
        peer_process("nixl", "twin", KIB) as first,
        peer_process("nixl", "twin", KIB) as second,
        closing(transport.connect(first.descriptor)),
        pytest.raises(PeerLostError, match="restarted"),
    ):
        transport.connect(second.descriptor)


def test_closing_with_a_read_that_never_ends_does_not_crash() -> None:
    """The agent stays, and `done` goes on telling the truth."""
    transport = create_transport("nixl", "closed-early")
    with stopped_peer_process("never-ends", KIB) as serving:
        pool = BufferPool(transport, 1, KIB)
        peer = transport.connect(serving.descriptor)
        buffer = pool.acquire(0.0)
        read = post(transport, peer, serving, buffer)
        pool.quarantine(buffer, read.done)
        assert pool.close() == 1
        transport.close()
        assert not read.done()
    assert pool.close(WAIT_SECONDS) == 0


def test_a_backend_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(TransportUnavailableError, match=r"'PIGEON'.*UCX") as raised:
        NixlTransport("no-backend", backend="PIGEON")
    assert "MX_NIXL_BACKEND" in raised.value.hint()


_PROGRAM = """
import logging, sys
from mx_artifacts.transport.base import RemoteRange
from mx_artifacts.memory.buffers import allocate
from mx_artifacts.transport.nixl_transport import NixlTransport
from mx_artifacts.transport.registry import create_transport
logging.basicConfig(level=logging.INFO)
transport = create_transport("nixl", "program")
buffer = allocate(64)
region = transport.register(buffer.view)
peer = transport.connect(bytes.fromhex(sys.argv[1]))
transport.post_read(peer, [RemoteRange(int(sys.argv[2]), 64)], [(region, 0)]).wait(60)
print(buffer.view.hex())
print("torch" in sys.modules, logging.getLogger("nixl").handlers)
"""


def test_stdout_stays_the_programs_and_exit_without_close_is_orderly() -> None:
    with peer_process("nixl", "for-program", KIB) as serving:
        arguments = [serving.descriptor.hex(), str(serving.addresses[0])]
        env = our_environment() | {"UCX_LOG_LEVEL": "info"}
        done = ended([sys.executable, "-c", _PROGRAM, *arguments], env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{pattern(64).hex()}\nFalse []\n"
    assert "UCX" in done.stderr


@pytest.mark.parametrize("device", ["lo", "nodevice"])
def test_an_agent_uses_the_device_that_is_pinned(device: str) -> None:
    """In a process of its own: what UCX may use is decided when it is loaded."""
    env = our_environment() | {"UCX_TLS": "tcp"}
    done = ended([sys.executable, "-c", _PINNED.format(device=device)], env=env)
    if device == "lo":
        assert done.stdout == "read\n", done.stderr
    else:
        assert "does not start" in done.stderr


_PINNED = """
import os
from mx_artifacts.memory.buffers import Buffer
from mx_artifacts.transport.base import RemoteRange
from mx_artifacts.transport.nixl_transport import NixlTransport
one, other = (NixlTransport(f"pinned-{{os.getpid()}}-{{n}}", devices=["{device}"]) for n in (1, 2))
served, taken = Buffer(4096), Buffer(4096)
served.view[:] = os.urandom(4096)
region, target = one.register(served.view), other.register(taken.view)
peer = other.connect(one.descriptor())
other.post_read(peer, [RemoteRange(region.addr, 4096)], [(target, 0)]).wait(30)
assert bytes(served.view) == bytes(taken.view)
print("read", flush=True)
os._exit(0)
"""
