"""One-sided reads of registered memory by NIXL.

Agents are not thread-safe: one lock is held around every call. A read that has not ended keeps
its handle, and its peer stays connected, since NIXL's release of a running read may return while
bytes are still being written. On one host a large read may be copied while it is posted.
"""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mx_artifacts.errors import (
    PeerLostError,
    ReadTimeoutError,
    RegistrationError,
    TransportError,
)
from mx_artifacts.transport.addresses import PlacedRegion, address_of, check_kind, check_ranges
from mx_artifacts.transport.base import (
    LocalMemory,
    MemoryKind,
    Peer,
    PendingRead,
    Region,
    RemoteRange,
    TransportProperties,
)
from mx_artifacts.transport.nixl import start_agent
from mx_artifacts.transport.nixl_descriptor import check_nixl_descriptor
from mx_artifacts.transport.peers import PeerTable

logger = logging.getLogger(__name__)

MAX_IDLE_PEERS = 64
"""Maximum number of connected agents without a read, kept for the next reads."""
START_TIMEOUT_SECONDS = 60.0
"""An agent starts in about 0.6 s; some hosts hang in UCX instead (NIXL issue 1668)."""
FIRST_POLL_SECONDS = 0.0001
LAST_POLL_SECONDS = 0.002
"""Polls of a read start dense, for small reads, and thin out; a 64 MiB chunk takes 5 ms or more."""

_PROPERTIES = TransportProperties("nixl", memory_kinds=frozenset(MemoryKind))


_HINTS = {
    MemoryKind.DRAM: "raise the memlock limit (ulimit -l), or lower the resident budget",
    MemoryKind.VRAM: "install the build of NIXL for this GPU (nixl-cu12 or nixl-cu13 by its CUDA)",
}


class NixlRegion(PlacedRegion):
    """Registered memory of the host or of a GPU."""

    def __init__(
        self,
        owner: NixlTransport,
        addr: int,
        length: int,
        kind: MemoryKind = MemoryKind.DRAM,
        device_id: int = 0,
    ) -> None:
        super().__init__(addr, length, kind, device_id)
        self._owner = owner

    def close(self) -> None:
        self._owner.deregister(self)


class NixlRead:
    """A posted read; `poll` of its transport moves it on."""

    def __init__(self, owner: NixlTransport, peer_name: str, handle: int) -> None:
        self.peer_name = peer_name
        self.handle = handle
        self.error: TransportError | None = None
        self._owner = owner

    def done(self) -> bool:
        return self._owner.poll(self)

    def wait(self, timeout_seconds: float) -> None:
        deadline = time.monotonic() + timeout_seconds
        delay = FIRST_POLL_SECONDS
        while not self.done():
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise ReadTimeoutError(
                    f"a read from agent {self.peer_name!r} did not end in {timeout_seconds:g} s"
                )
            time.sleep(min(delay, remaining))
            delay = min(2 * delay, LAST_POLL_SECONDS)
        if self.error is not None:
            raise self.error


class NixlTransport:
    """A NIXL agent with one backend."""

    def __init__(
        self,
        agent_name: str,
        *,
        backend: str = "UCX",
        devices: Sequence[str] = (),
        start_timeout_seconds: float = START_TIMEOUT_SECONDS,
    ) -> None:
        """Start the agent; `agent_name` must never be that of an earlier process.

        `devices` are the network devices that UCX may use; empty: those that it chooses.

        Raises:
            TransportUnavailableError: NIXL or the backend is missing, or does not start in time.
        """
        self._name = agent_name
        self._lock = threading.RLock()
        started = start_agent(agent_name, backend, start_timeout_seconds, devices)
        self._nixl, self._agent, self._backend = started.nixl, started.agent, started.backend
        self._regions: dict[Region, Any] = {}
        self._running: set[NixlRead] = set()
        self._lost: set[str] = set()
        self._peers = PeerTable(self._load)
        self._closed = False

    @property
    def properties(self) -> TransportProperties:
        return _PROPERTIES

    @property
    def agent_name(self) -> str:
        return self._name

    def names(self, host: str = "") -> Sequence[str]:
        return (_PROPERTIES.name,)

    def listen(self, host: str, port: int, *, strict_port: bool = False) -> None:
        """Do nothing: NIXL's backend has listened since it was started, on ports of its own."""

    def register(self, memory: LocalMemory) -> Region:
        if isinstance(memory, memoryview):
            region = NixlRegion(self, address_of(memory), memory.nbytes)
        else:
            check_kind(memory, _PROPERTIES)
            region = NixlRegion(self, memory.addr, memory.length, memory.kind, memory.device_id)
        at = (region.addr, region.length, region.device_id, "")
        descriptors = self._ranges(self._nixl.nixlRegDList, region.kind, [at])
        with self._lock:
            self._check_open()
            try:
                self._agent.registerMem(descriptors, [self._backend])
            except Exception as error:
                raise RegistrationError(
                    f"NIXL cannot register {region.length} bytes of {region.kind.value}: "
                    f"{_text(error)}",
                    hint=_HINTS[region.kind],
                ) from error
            self._regions[region] = descriptors
        return region

    def deregister(self, region: NixlRegion) -> None:
        """Take `region` from the agent, once."""
        with self._lock:
            descriptors = self._regions.pop(region, None)
            if descriptors is not None:
                self._agent.deregisterMem(descriptors, [self._backend])

    def _ranges(
        self, make: Callable[[Any], Any], kind: MemoryKind, ranges: Iterable[tuple[Any, ...]]
    ) -> Any:
        """Return NIXL's list of ranges of one kind of memory."""
        made = make(getattr(self._nixl, f"{kind.value}_SEG"))
        for each in ranges:
            made.addDesc(each)  # given all at once, the bindings import numpy, to see if it is that
        return made

    def descriptor(self) -> bytes:
        with self._lock:
            self._check_open()
            return bytes(self._agent.getLocalMD())

    def descriptors(self) -> dict[str, bytes]:
        return {_PROPERTIES.name: self.descriptor()}

    def connect(self, descriptor: bytes, host: str = "") -> Peer:
        check_nixl_descriptor(descriptor)
        with self._lock:
            self._check_open()
            return self._peers.connect(descriptor)

    def _load(self, descriptor: bytes) -> str:
        for name in self._peers.idle()[:-MAX_IDLE_PEERS]:
            self._disconnect(name)
        try:
            try:
                return self._load_once(descriptor)
            except self._nixl.nixlNotAllowedError:
                # Another agent has this name already. If it is idle, it is the former life.
                for name in self._peers.idle():
                    self._disconnect(name)
                return self._load_once(descriptor)
        except self._nixl.nixlNotAllowedError as error:
            raise PeerLostError(
                "the peer was restarted, and its earlier agent of the same name is still in use",
                hint="end all reads from the earlier agent, then connect again",
            ) from error
        except Exception as error:
            raise TransportError(
                f"NIXL cannot use the agent descriptor ({len(descriptor)} bytes): {_text(error)}",
                hint="both ends need the same NIXL backend (MX_NIXL_BACKEND) and UCX release",
            ) from error

    def _load_once(self, descriptor: bytes) -> str:
        return str(self._agent.loadRemoteMD(descriptor).decode())

    def _disconnect(self, name: str) -> None:
        """Disconnect agent `name`, as soon as no read from it is running."""
        if any(read.peer_name == name for read in self._running):
            self._lost.add(name)
            return
        self._lost.discard(name)
        self._peers.drop(name)
        try:
            self._agent.invalidateRemoteMD(name)
        except Exception as error:  # a connection that is gone already is what was wanted
            logger.debug("NIXL disconnects agent %r: %s", name, _text(error))

    def post_read(
        self, peer: Peer, source: Sequence[RemoteRange], target: Sequence[tuple[Region, int]]
    ) -> PendingRead:
        check_ranges(source, target, _PROPERTIES)
        ranges = self._nixl.nixlXferDList
        remote = self._ranges(
            ranges, source[0].kind, [(r.addr, r.length, r.device_id) for r in source]
        )
        local = self._ranges(
            ranges,
            target[0][0].kind,
            [
                (region.addr + offset, wanted.length, region.device_id)
                for wanted, (region, offset) in zip(source, target, strict=True)
            ],
        )
        request = (self._nixl.NIXL_READ, local, remote, peer.name, b"", [self._backend])
        with self._lock:
            self._check_open()
            if any(region not in self._regions for region, _ in target):
                raise ValueError("a target region is closed or belongs to another transport")
            handle = self._call(peer.name, self._agent.createXferReq, *request)
            read = NixlRead(self, peer.name, handle)
            self._running.add(read)
            try:
                self._call(peer.name, self._agent.postXferReq, handle, b"")
            except TransportError as error:
                self._end(read, error)
        return read

    def poll(self, read: NixlRead) -> bool:
        """Move `read` on; return whether it has ended."""
        with self._lock:
            if read not in self._running:
                return True
            try:
                status = self._call(read.peer_name, self._agent.getXferStatus, read.handle)
            except TransportError as error:
                self._end(read, error)
                return True
            if status == self._nixl.NIXL_IN_PROG:
                return False
            self._end(read, None)
            return True

    def _end(self, read: NixlRead, error: TransportError | None) -> None:
        # A failed read has failed as a whole: UCX flushes all requests of a broken connection.
        read.error = error
        self._running.discard(read)
        try:
            self._agent.releaseXferReq(read.handle)
        except Exception as failure:
            logger.debug("NIXL releases a read: %s", _text(failure))
        if isinstance(error, PeerLostError) or read.peer_name in self._lost:
            self._disconnect(read.peer_name)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            for name in self._peers.connected():
                self._disconnect(name)
            if self._running:
                # Freeing the agent would free what NIXL still writes through: keep it for good.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._agent))
                logger.warning("%d reads never ended; their NIXL agent stays", len(self._running))
            else:
                for region in list(self._regions):
                    region.close()
                del self._agent  # joins its progress thread
            self._closed = True

    def _call(self, peer_name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except (self._nixl.nixlRemoteDisconnectError, self._nixl.nixlCancelledError) as error:
            raise PeerLostError(f"agent {peer_name!r} is lost: {_text(error)}") from error
        except self._nixl.nixlNotFoundError as error:
            if peer_name not in self._peers.connected():
                raise PeerLostError(f"agent {peer_name!r} is no longer connected") from error
            raise TransportError(
                f"a range to read is not in any region that agent {peer_name!r} registered",
                hint="connect with a descriptor made after the memory was registered",
            ) from error
        except Exception as error:
            raise TransportError(f"reading from agent {peer_name!r}: {_text(error)}") from error

    def _check_open(self) -> None:
        if self._closed:
            raise TransportError(f"agent {self._name!r} is closed")


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
