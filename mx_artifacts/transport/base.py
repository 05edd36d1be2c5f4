"""The plug-in interface of the data plane: one-sided reads between registered memory.

A transport handles addresses and lengths; it does not know artifacts. Every implementation must
pass tests/contract/test_transport.py. The registry (`registry.py`) finds it by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

MAX_ADDRESS = 1 << 64
"""No range of memory ends above."""


class MemoryKind(Enum):
    """What memory is made of; its value is NIXL's name of it."""

    DRAM = "DRAM"
    """The host's."""
    VRAM = "VRAM"
    """A GPU's."""


@dataclass(frozen=True)
class TransportProperties:
    """Facts about a transport that callers may act upon."""

    name: str
    memory_kinds: frozenset[MemoryKind] = frozenset({MemoryKind.DRAM})
    """What it can register and read."""


@dataclass(frozen=True)
class DeviceMemory:
    """Local memory that no memoryview can show: `length` bytes [> 0] at virtual address `addr`.

    `device_id` is the GPU's index in this process, as CUDA counts them.
    """

    addr: int
    length: int
    device_id: int = 0
    kind: MemoryKind = MemoryKind.VRAM


LocalMemory = memoryview | DeviceMemory
"""What a transport can register; a memoryview is DRAM."""


@dataclass(frozen=True)
class RemoteRange:
    """`length` bytes [> 0] at virtual address `addr` of a peer's device `device_id`.

    DRAM is device 0; of VRAM it is the GPU's index in the peer's process.
    """

    addr: int
    length: int
    device_id: int = 0
    kind: MemoryKind = MemoryKind.DRAM


class Region(Protocol):
    """Registered local memory."""

    @property
    def addr(self) -> int:
        """Virtual address of the first byte."""
        ...

    @property
    def length(self) -> int:
        """Size [bytes]."""
        ...

    @property
    def kind(self) -> MemoryKind:
        """What it is made of."""
        ...

    @property
    def device_id(self) -> int:
        """The GPU's index in this process; 0 for DRAM."""
        ...

    def close(self) -> None:
        """Deregister. Idempotent. The caller makes sure that no read of it is pending."""
        ...


class Peer(Protocol):
    """A connected remote agent. `connect` counts references; `close` gives one back."""

    @property
    def name(self) -> str:
        """The remote agent's name."""
        ...

    def close(self) -> None:
        """Give this reference back. Idempotent per object.

        The connection may stay for the next `connect`; a lost one does not.
        """
        ...


class PendingRead(Protocol):
    """A posted read. Until `done()` is true its local memory belongs to the transport."""

    def done(self) -> bool:
        """Return whether the memory may be used again: finished or failed for good."""
        ...

    def wait(self, timeout_seconds: float) -> None:
        """Block until the bytes are there.

        Raises:
            ReadTimeoutError: not finished in time; the memory stays the transport's until done().
            PeerLostError: the peer went away.
            TransportError: any other failure.
        """
        ...


class Transport(Protocol):
    """One agent of a process. All methods may be called from any thread."""

    @property
    def properties(self) -> TransportProperties:
        """Facts about this transport."""
        ...

    @property
    def agent_name(self) -> str:
        """Name of this agent, unique among those that may meet."""
        ...

    def names(self, host: str = "") -> Sequence[str]:
        """Return the transports by which it can read from a peer at `host`, the preferred first.

        Its own name only, unless it combines several (`CombinedTransport`). An empty host means any
        host; the names are then also those by which a peer can read this agent.
        """
        ...

    def listen(self, host: str, port: int, *, strict_port: bool = False) -> None:
        """Let peers reach this agent at `host`. Sources call this before `descriptor`.

        A transport without a port of its own does nothing, and so does one that already listens at
        `host`. Port 0 means any free port. If the port is in use, another one is taken, unless
        `strict_port`.

        Raises:
            ConfigurationError: it is not possible to listen there.
        """
        ...

    def register(self, memory: LocalMemory) -> Region:
        """Register writable contiguous `memory`; the caller keeps it alive until the region closes.

        Raises:
            ValueError: the memory is empty, read-only or not contiguous.
            RegistrationError: memory of a kind that it does not take (`properties.memory_kinds`),
                too much memory, or the memlock limit.
        """
        ...

    def descriptor(self) -> bytes:
        """Return the agent descriptor: what a peer needs to connect and read all regions
        registered until now. Opaque; the wire calls it `source_metadata`."""
        ...

    def descriptors(self) -> Mapping[str, bytes]:
        """Return `descriptor` by the name of the transport that it is for, of each of `names()`."""
        ...

    def connect(self, descriptor: bytes, host: str = "") -> Peer:
        """Connect to the agent that made `descriptor`, or take another reference to it.

        `host` is where the caller reaches the agent's process; empty: on this machine. If
        descriptors of a transport contain the host, the transport uses that one. A newer descriptor
        of a known agent makes its new regions readable.

        Raises:
            TransportError: the descriptor is damaged, or of a transport that does not pair.
            PeerLostError: the agent has ended, or its name is that of an agent that is still in
                use.
        """
        ...

    def post_read(
        self, peer: Peer, source: Sequence[RemoteRange], target: Sequence[tuple[Region, int]]
    ) -> PendingRead:
        """Start reading `source[i]` into `target[i]` = (region, offset in it [bytes]).

        Raises:
            ValueError: the sequences are empty or differ in length, a range does not fit its
                region, a target region is closed or belongs to another transport, or ranges of one
                side differ in kind.
            PeerLostError: the peer has ended (`wait` may raise it later).
            TransportError: a range is outside the peer's registered regions, or another failure.
        """
        ...

    def close(self) -> None:
        """Disconnect all peers and free the agent. Idempotent; regions are closed before.

        Reads that have not ended keep the resources that they need, and `done()` stays correct.
        """
        ...
