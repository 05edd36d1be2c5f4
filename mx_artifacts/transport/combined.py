"""NIXL and the stream as one transport: the form of a peer's descriptor decides which one reads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from mx_artifacts.errors import (
    OtherTransportError,
    PeerLostError,
    ReadTimeoutError,
    TransportError,
)
from mx_artifacts.runtime.clock import SYSTEM_CLOCK, Clock
from mx_artifacts.transport.base import (
    LocalMemory,
    MemoryKind,
    Peer,
    PendingRead,
    Region,
    RemoteRange,
    Transport,
    TransportProperties,
)
from mx_artifacts.transport.stream.frames import is_stream_descriptor
from mx_artifacts.transport.stream.transport import StreamTransport

logger = logging.getLogger(__name__)

FIRST_READ_SECONDS = 10.0
"""How long the first read from a peer may take by a transport for which there is another: a
firewall that drops NIXL's port looks like a source that is slow."""


class CombinedRegion:
    """Memory that is registered with both, at the same address; a GPU's with the first only."""

    def __init__(self, preferred: Region, stream: Region | None) -> None:
        self.preferred = preferred
        self.stream = stream

    @property
    def addr(self) -> int:
        return self.preferred.addr

    @property
    def length(self) -> int:
        return self.preferred.length

    @property
    def kind(self) -> MemoryKind:
        return self.preferred.kind

    @property
    def device_id(self) -> int:
        return self.preferred.device_id

    def close(self) -> None:
        if self.stream is not None:
            self.stream.close()
        self.preferred.close()


class CombinedPeer:
    """A peer of one of both."""

    def __init__(self, inner: Peer, host: str, *, is_stream: bool) -> None:
        self.inner = inner
        self.host = host
        self.is_stream = is_stream
        self.has_delivered = is_stream

    @property
    def name(self) -> str:
        return self.inner.name

    def close(self) -> None:
        self.inner.close()


class CombinedTransport:
    """`preferred` (NIXL), and the stream for every peer that has it not, or cannot be reached so.

    Both are this one's from here on.
    """

    def __init__(
        self, preferred: Transport, stream: StreamTransport, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._preferred = preferred
        self._stream = stream
        self._clock = clock
        self._lock = threading.Lock()
        self._unreached: set[str] = set()
        self._warned = False

    @property
    def properties(self) -> TransportProperties:
        return self._preferred.properties

    @property
    def agent_name(self) -> str:
        return self._preferred.agent_name

    def names(self, host: str = "") -> Sequence[str]:
        with self._lock:
            is_unreached = host in self._unreached
        stream = self._stream.names()
        return stream if host and is_unreached else (*self._preferred.names(), *stream)

    def listen(self, host: str, port: int, *, strict_port: bool = False) -> None:
        self._stream.listen(host, port, strict_port=strict_port)
        if not self._warned:
            self._warned = True
            logger.warning(
                "MX_TRANSPORT=nixl: everyone who can reach the TCP and UDP ports that UCX opens "
                "in this process (process %s) can read and write all of its memory",
                self.agent_name,
            )

    def register(self, memory: LocalMemory) -> Region:
        with ExitStack() as on_failure:
            preferred = self._preferred.register(memory)
            on_failure.callback(preferred.close)
            is_shared = preferred.kind in self._stream.properties.memory_kinds
            stream = self._stream.register(memory, preferred.addr) if is_shared else None
            on_failure.pop_all()
        return CombinedRegion(preferred, stream)

    def descriptor(self) -> bytes:
        return self._preferred.descriptor()

    def descriptors(self) -> Mapping[str, bytes]:
        return {**self._preferred.descriptors(), **self._stream.descriptors()}

    def connect(self, descriptor: bytes, host: str = "") -> Peer:
        if is_stream_descriptor(descriptor):
            return CombinedPeer(self._stream.connect(descriptor, host), host, is_stream=True)
        try:
            peer = self._preferred.connect(descriptor, host)
        except TransportError as error:
            raise self.falls_back(host, error) from error
        return CombinedPeer(peer, host, is_stream=False)

    def post_read(
        self, peer: Peer, source: Sequence[RemoteRange], target: Sequence[tuple[Region, int]]
    ) -> PendingRead:
        if not isinstance(peer, CombinedPeer):
            raise ValueError("the peer belongs to another transport")
        inner: list[tuple[Region, int]] = []
        for region, offset in target:
            if not isinstance(region, CombinedRegion):
                raise ValueError("a target region belongs to another transport")
            by = region.stream if peer.is_stream else region.preferred
            if by is None:
                raise TransportError(
                    f"the stream transport reads into DRAM only, not into {region.kind.value}",
                    hint="open the ports of NIXL in the firewall, or read into DRAM first",
                )
            inner.append((by, offset))
        if peer.is_stream:
            return self._stream.post_read(peer.inner, source, inner)
        try:
            read = self._preferred.post_read(peer.inner, source, inner)
        except TransportError as error:
            raise self.falls_back(peer.host, error) from error
        return _PreferredRead(self, peer, read, self._clock)

    def falls_back(self, host: str, error: TransportError) -> OtherTransportError:
        """Read from `host` by the stream from now on; return what to raise in place of `error`."""
        with self._lock:
            self._unreached.add(host)
        return OtherTransportError(f"{error}; trying the stream transport", hint=error.hint())

    def close(self) -> None:
        self._stream.close()
        self._preferred.close()


class _PreferredRead:
    """A read by the preferred transport, whose failure lets the next one go by the stream."""

    def __init__(
        self, owner: CombinedTransport, peer: CombinedPeer, read: PendingRead, clock: Clock
    ) -> None:
        self._owner = owner
        self._peer = peer
        self._read = read
        self._clock = clock
        self._posted_at = clock.monotonic()

    def done(self) -> bool:
        return self._read.done()

    def wait(self, timeout_seconds: float) -> None:
        try:
            self._read.wait(timeout_seconds)
        except ReadTimeoutError:
            waited_seconds = self._clock.monotonic() - self._posted_at
            if self._peer.has_delivered or waited_seconds < FIRST_READ_SECONDS:
                raise
            silent = PeerLostError(
                f"no byte came from the NIXL agent at {self._peer.host} in "
                f"{FIRST_READ_SECONDS:g} s",
                hint="open the ports of UCX in the firewall (UCX_TCP_PORT_RANGE), or set "
                "MX_TRANSPORT to auto",
            )
            raise self._owner.falls_back(self._peer.host, silent) from None
        except TransportError as error:
            raise self._owner.falls_back(self._peer.host, error) from error
        self._peer.has_delivered = True
