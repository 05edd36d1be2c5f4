"""The stream transport: one agent per process; it listens once its descriptor is requested."""

from __future__ import annotations

import logging
import os
import secrets
import select
import threading
from collections.abc import Sequence

from mx_artifacts.errors import ConfigurationError, PeerLostError, TransportError
from mx_artifacts.runtime.clock import SYSTEM_CLOCK
from mx_artifacts.transport.addresses import check_ranges, view_of_dram
from mx_artifacts.transport.base import (
    LocalMemory,
    Peer,
    PendingRead,
    Region,
    RemoteRange,
    TransportProperties,
)
from mx_artifacts.transport.stream import sockets
from mx_artifacts.transport.stream.frames import (
    MAX_RANGES,
    FrameError,
    StreamDescriptor,
    encode_request,
)
from mx_artifacts.transport.stream.limits import StreamLimits, is_own_process
from mx_artifacts.transport.stream.reads import FIREWALL_HINT, Connection, StreamRead, stranger
from mx_artifacts.transport.stream.regions import RegionTable, StreamRegion
from mx_artifacts.transport.stream.server import StreamServer

logger = logging.getLogger(__name__)

NAME = "stream"
THIS_MACHINE = "127.0.0.1"
MAX_KEPT_CONNECTIONS = 16
"""Maximum number of idle connections to one source; a transfer reads by a few threads."""

_PROPERTIES = TransportProperties(NAME)


class StreamTransport:
    """An agent whose peers read it over TCP. A process that only reads listens on no port."""

    def __init__(self, agent_name: str, limits: StreamLimits | None = None) -> None:
        self._name = agent_name
        self._limits = limits
        self._agent_id = secrets.randbits(64)
        self._process_id = os.getpid()
        self._table = RegionTable()
        self._lock = threading.RLock()
        self._server: StreamServer | None = None
        self._listens_at = ""
        self._sources: dict[tuple[str, int, int], RemoteAgent] = {}
        self._reads: set[StreamRead] = set()
        self._closed = False

    @property
    def properties(self) -> TransportProperties:
        return _PROPERTIES

    @property
    def agent_name(self) -> str:
        return self._name

    def names(self, host: str = "") -> Sequence[str]:
        return (NAME,)

    # --- source side -----------------------------------------------------------------------------

    def register(self, memory: LocalMemory, addr: int | None = None) -> Region:
        """As `Transport.register`; at `addr` where another transport gave it an address."""
        view = view_of_dram(memory, _PROPERTIES)
        with self._lock:
            self._check_open()
            return self._table.add(view, addr)

    def listen(self, host: str, port: int, *, strict_port: bool = False) -> None:
        with self._lock:
            self._check_open()
            if self._server is not None:
                if self._listens_at != host:
                    raise ConfigurationError(
                        f"agent {self._name!r} already listens at {self._listens_at!r}",
                        hint="open one transport for each host to listen on",
                    )
                return
            try:
                listeners = sockets.listen(host, port)
            except ConfigurationError as error:
                if strict_port or not port or not sockets.is_in_use(error):
                    raise
                listeners = sockets.listen(host, 0)
                logger.warning(
                    "stream port %d is in use, so this source uses port %d",
                    port,
                    listeners[0].getsockname()[1],
                )
            limits = self._limits or StreamLimits.of_process()
            self._server = StreamServer(self._table, listeners, limits)
            self._listens_at = host

    def descriptor(self) -> bytes:
        """As `Transport.descriptor`; listens on this machine only, unless `listen` was called."""
        with self._lock:
            self._check_open()
            if self._server is None:
                self.listen(THIS_MACHINE, 0)
            assert self._server is not None
            if not self._server.is_alive:
                raise TransportError(f"agent {self._name!r} does not serve its stream port")
            token, serial = self._table.token()
            return StreamDescriptor(self._server.port, self._agent_id, serial, token).encode()

    def descriptors(self) -> dict[str, bytes]:
        return {NAME: self.descriptor()}

    # --- target side -----------------------------------------------------------------------------

    def connect(self, descriptor: bytes, host: str = "") -> Peer:
        """As `Transport.connect`; waits for the connection for CONNECT_SECONDS at most."""
        parsed = StreamDescriptor.decode(descriptor)
        host = host or THIS_MACHINE
        key = host, parsed.port, parsed.agent_id
        with self._lock:
            self._check_open()
            source = self._sources.get(key)
            if source is None:
                source = self._sources[key] = RemoteAgent(host, parsed)
            source.learn(parsed)
            source.references += 1
        peer = StreamPeer(self, source)
        try:
            source.reach()
        except BaseException:
            peer.close()
            raise
        return peer

    def give_back(self, source: RemoteAgent) -> None:
        """Take back a reference to `source`; its idle connections go with the last one."""
        with self._lock:
            source.references -= 1
            if not source.references:
                key = source.host, source.port, source.agent_id
                if self._sources.get(key) is source:
                    del self._sources[key]
                source.close()

    def post_read(
        self, peer: Peer, source: Sequence[RemoteRange], target: Sequence[tuple[Region, int]]
    ) -> PendingRead:
        check_ranges(source, target, _PROPERTIES)
        if not isinstance(peer, StreamPeer):
            raise ValueError("the peer belongs to another transport")
        views = []
        for wanted, (region, offset) in zip(source, target, strict=True):
            if not isinstance(region, StreamRegion) or region not in self._table:
                raise ValueError("a target region is closed or belongs to another transport")
            views.append(region.view[offset : offset + wanted.length])
        if any(wanted.device_id for wanted in source):
            raise TransportError(
                "a range to read is in device memory, which cannot be registered here"
            )
        requests = [
            (encode_request(source[at : at + MAX_RANGES]), views[at : at + MAX_RANGES])
            for at in range(0, len(source), MAX_RANGES)
        ]
        with self._lock:
            self._check_open()
        read = StreamRead(peer.source, requests, self._reads.discard)
        if not read.done():
            with self._lock:
                self._reads.add(read)
                closed = self._closed
            if closed:
                read.abort(self._closed_error())
            elif read.done():
                self._reads.discard(read)
        return read

    def close(self) -> None:
        """As `Transport.close`. A child of fork leaves alone what it shares with its parent."""
        if not is_own_process(self._process_id):
            return  # also since another thread may have held the lock when it was forked
        with self._lock:
            if self._closed:
                return
            self._closed = True
            server, self._server = self._server, None
            sources, self._sources = list(self._sources.values()), {}
            reads = list(self._reads)
        for read in reads:
            read.abort(self._closed_error())
        for source in sources:
            source.close()
        if server is not None:
            server.stop()
        self._table.clear()

    def _closed_error(self) -> TransportError:
        return TransportError(f"agent {self._name!r} is closed")

    def _check_open(self) -> None:
        if self._closed:
            raise self._closed_error()


class RemoteAgent:
    """A source to read from: its newest token, and the connections that are not in use."""

    def __init__(self, host: str, descriptor: StreamDescriptor) -> None:
        self.host = host
        self.port = descriptor.port
        self.agent_id = descriptor.agent_id
        self.references = 0
        self._newest = descriptor
        self._lock = threading.Lock()
        self._addresses: list[tuple[int, tuple[object, ...]]] = []
        self._idle: list[Connection] = []
        self._closed = False

    @property
    def where(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def learn(self, descriptor: StreamDescriptor) -> None:
        """Use a newer token from here on; connections that said hello with another one go."""
        with self._lock:
            if descriptor.serial > self._newest.serial:
                self._newest = descriptor
                _close_all(self._idle)  # those in use go when they are given back

    def reach(self) -> None:
        """Make sure that there is a connection, waiting for it; its addresses are known then.

        Raises:
            PeerLostError: none of its addresses answers within CONNECT_SECONDS.
        """
        with self._lock:
            if self._idle:
                return
        deadline = SYSTEM_CLOCK.monotonic() + sockets.CONNECT_SECONDS
        why = "it has no address"
        for address in sockets.resolve(self.host, self.port):
            try:
                connection = self._connect_patiently(address, deadline)
            except FrameError as error:
                raise stranger(self.where, str(error)) from None
            except OSError as error:
                why = error.strerror or str(error)
                continue
            self._addresses = [address]
            self.give_back(connection)
            return
        raise PeerLostError(f"{self.where} cannot be reached: {why}", hint=FIREWALL_HINT)

    def _connect_patiently(
        self, address: tuple[int, tuple[object, ...]], deadline: float
    ) -> Connection:
        """Connect, and again where a source with many readers closed the connection."""
        while True:
            try:
                return self._connect(address, deadline)
            except (ConnectionResetError, BrokenPipeError):
                if SYSTEM_CLOCK.monotonic() >= deadline:
                    raise
                SYSTEM_CLOCK.sleep(sockets.RECONNECT_SECONDS)

    def _connect(self, address: tuple[int, tuple[object, ...]], deadline: float) -> Connection:
        connection = self._begin_connect(address)
        try:
            _wait(connection, select.POLLOUT, deadline)
            error = sockets.connect_error(connection.socket)
            if error is not None:
                raise error
            connection.is_connected = True
            _greeted(connection, deadline)
        except BaseException:
            connection.close()
            raise
        return connection

    def take(self, *, fresh: bool) -> Connection:
        while True:
            with self._lock:
                if self._closed:
                    raise PeerLostError(f"the agent at {self.where} is no longer connected")
                if fresh or not self._idle:
                    break
                connection = self._idle.pop()
            if not _is_readable(connection):
                return connection
            connection.close()
        try:
            return self._begin_connect(self._addresses[0])
        except OSError as error:
            raise PeerLostError(
                f"{self.where} cannot be reached: {error.strerror}", hint=FIREWALL_HINT
            ) from error

    def _begin_connect(self, address: tuple[int, tuple[object, ...]]) -> Connection:
        return Connection(sockets.begin_connect(*address), self._newest)

    def give_back(self, connection: Connection) -> None:
        with self._lock:
            is_current = not self._closed and connection.descriptor == self._newest
            if is_current and len(self._idle) < MAX_KEPT_CONNECTIONS:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close the connections that are not in use, and open no more. Idempotent."""
        with self._lock:
            self._closed = True
            _close_all(self._idle)


def _greeted(connection: Connection, deadline: float) -> None:
    """Wait for the greeting and answer it."""
    while not connection.is_greeted:
        _wait(connection, select.POLLIN, deadline)
        hello = connection.take_greeting()
    connection.socket.send(hello)


def _wait(connection: Connection, events: int, deadline: float) -> None:
    poller = select.poll()
    poller.register(connection.socket, events)
    if not poller.poll(max(0.0, deadline - SYSTEM_CLOCK.monotonic()) * 1000):
        raise TimeoutError(f"no answer in {sockets.CONNECT_SECONDS:g} s")


def _close_all(connections: list[Connection]) -> None:
    while connections:
        connections.pop().close()


def _is_readable(connection: Connection) -> bool:
    """Return whether something arrived on an idle connection: its end, or unrequested bytes."""
    poller = select.poll()
    poller.register(connection.socket, select.POLLIN)
    return bool(poller.poll(0))


class StreamPeer:
    """One reference to a source."""

    def __init__(self, owner: StreamTransport, source: RemoteAgent) -> None:
        self.source = source
        self._owner = owner
        self._lock = threading.Lock()
        self._open = True

    @property
    def name(self) -> str:
        return f"{self.source.where}/{self.source.agent_id:016x}"

    def close(self) -> None:
        with self._lock:
            was_open, self._open = self._open, False
        if was_open:
            self._owner.give_back(self.source)
