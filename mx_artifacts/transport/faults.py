"""A transport that fails on purpose: wraps another one and spoils the reads that a plan names.

    FaultyTransport(inner, {2: LosePeer(), 5: Corrupt(offset_bytes=100)})

Reads are numbered from 1 in the order in which they are posted. Nothing here is random.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from mx_artifacts.errors import PeerLostError, ReadTimeoutError
from mx_artifacts.runtime.clock import SYSTEM_CLOCK, Clock
from mx_artifacts.transport.addresses import view_of_dram
from mx_artifacts.transport.base import (
    LocalMemory,
    Peer,
    PendingRead,
    Region,
    RemoteRange,
    Transport,
    TransportProperties,
)

POLL_SECONDS = 0.01
"""How often a held-back read looks whether it was let go."""


@dataclass(frozen=True)
class LosePeer:
    """The read ends with PeerLostError; its memory is free."""


@dataclass(frozen=True)
class Corrupt:
    """The read succeeds, but the byte at `offset_bytes` of its first range is inverted."""

    offset_bytes: int = 0


@dataclass(frozen=True)
class Truncate:
    """The read succeeds, but its first range is zero after `kept_bytes`."""

    kept_bytes: int = 0


@dataclass(frozen=True)
class Delay:
    """The read does not end before `seconds` have passed."""

    seconds: float


@dataclass(frozen=True)
class Stall:
    """The read does not end before `let_go` is called."""


Fault = LosePeer | Corrupt | Truncate | Delay | Stall


class FaultyTransport:
    """`inner` with faults; everything but reads is passed on. Closing it closes `inner`."""

    def __init__(
        self, inner: Transport, plan: Mapping[int, Fault], clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._inner = inner
        self._plan = dict(plan)
        self._clock = clock
        self._lock = threading.Lock()
        self._posted = 0
        self._memory: WeakKeyDictionary[Region, memoryview] = WeakKeyDictionary()
        self._may_go = threading.Event()

    @property
    def properties(self) -> TransportProperties:
        return self._inner.properties

    @property
    def agent_name(self) -> str:
        return self._inner.agent_name

    def names(self, host: str = "") -> Sequence[str]:
        return self._inner.names(host)

    def listen(self, host: str, port: int, *, strict_port: bool = False) -> None:
        self._inner.listen(host, port, strict_port=strict_port)

    def register(self, memory: LocalMemory) -> Region:
        region = self._inner.register(memory)
        with self._lock:
            self._memory[region] = view_of_dram(memory, self.properties)
        return region

    def descriptor(self) -> bytes:
        return self._inner.descriptor()

    def descriptors(self) -> Mapping[str, bytes]:
        return self._inner.descriptors()

    def connect(self, descriptor: bytes, host: str = "") -> Peer:
        return self._inner.connect(descriptor, host)

    def post_read(
        self, peer: Peer, source: Sequence[RemoteRange], target: Sequence[tuple[Region, int]]
    ) -> PendingRead:
        with self._lock:
            self._posted += 1
            fault = self._plan.get(self._posted)
        read = self._inner.post_read(peer, source, target)
        if fault is None:
            return read
        if isinstance(fault, Delay | Stall):
            seconds = fault.seconds if isinstance(fault, Delay) else math.inf
            return _HeldRead(read, self._clock, self._clock.monotonic() + seconds, self._may_go)
        region, offset = target[0]
        data = self._memory[region][offset : offset + source[0].length]
        return _SpoiltRead(read, fault, peer.name, data)

    def let_go(self) -> None:
        """Let all stalled and delayed reads end, now and from here on."""
        self._may_go.set()

    def close(self) -> None:
        self._inner.close()


class _HeldRead:
    """A read that is not done before a given time, even if the wrapped read is done."""

    def __init__(
        self, read: PendingRead, clock: Clock, not_before: float, may_go: threading.Event
    ) -> None:
        self._read = read
        self._clock = clock
        self._not_before = not_before
        self._may_go = may_go

    def _held(self) -> bool:
        return not self._may_go.is_set() and self._clock.monotonic() < self._not_before

    def done(self) -> bool:
        return not self._held() and self._read.done()

    def wait(self, timeout_seconds: float) -> None:
        deadline = self._clock.monotonic() + timeout_seconds
        while self._held():
            remaining = min(deadline, self._not_before) - self._clock.monotonic()
            if deadline - self._clock.monotonic() <= 0:
                raise ReadTimeoutError(f"a read did not end in {timeout_seconds:g} s (injected)")
            self._clock.sleep(max(0.0, min(POLL_SECONDS, remaining)))
        self._read.wait(max(0.0, deadline - self._clock.monotonic()))


class _SpoiltRead:
    """A read whose bytes or outcome are changed, once, when it ends."""

    def __init__(
        self,
        read: PendingRead,
        fault: LosePeer | Corrupt | Truncate,
        peer_name: str,
        data: memoryview,
    ) -> None:
        self._read = read
        self._fault = fault
        self._peer_name = peer_name
        self._data = data
        self._lock = threading.Lock()
        self._spoilt = False

    def done(self) -> bool:
        if not self._read.done():
            return False
        self._spoil()
        return True

    def wait(self, timeout_seconds: float) -> None:
        self._read.wait(timeout_seconds)
        self._spoil()
        if isinstance(self._fault, LosePeer):
            raise PeerLostError(f"agent {self._peer_name!r} went away (injected)")

    def _spoil(self) -> None:
        with self._lock:
            if self._spoilt:
                return
            self._spoilt = True
            if isinstance(self._fault, Corrupt):
                self._data[min(self._fault.offset_bytes, len(self._data) - 1)] ^= 0xFF
            elif isinstance(self._fault, Truncate):
                kept = min(self._fault.kept_bytes, len(self._data))
                self._data[kept:] = bytes(len(self._data) - kept)
