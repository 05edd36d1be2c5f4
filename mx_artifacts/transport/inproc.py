"""One-sided reads between agents of one process: no network, no other process, no waiting.

For tests and for a publisher that fetches from itself. It fails where NIXL fails: a range outside
the regions that the peer's descriptor announced, a region that was closed, a peer that has ended.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from mx_artifacts.errors import PeerLostError, TransportError, TransportUnavailableError
from mx_artifacts.transport.addresses import PlacedRegion, address_of, check_ranges, view_of_dram
from mx_artifacts.transport.base import (
    LocalMemory,
    MemoryKind,
    Peer,
    PendingRead,
    Region,
    RemoteRange,
    TransportProperties,
)
from mx_artifacts.transport.peers import PeerTable

_PROPERTIES = TransportProperties("inproc")
_agents: dict[str, InprocTransport] = {}
_agents_lock = threading.Lock()
_incarnations = itertools.count(1)


class InprocRegion(PlacedRegion):
    """Registered memory; holds a view of it until closed."""

    def __init__(self, owner: InprocTransport, view: memoryview) -> None:
        super().__init__(address_of(view), view.nbytes)
        self.view = view
        self._owner = owner

    def close(self) -> None:
        """Deregister; later reads of it fail as PeerLostError."""
        self._owner.forget_region(self)
        self.view.release()


@dataclass(frozen=True)
class _InprocDescriptor:
    """What a peer's descriptors said: which life of the agent, and its (address, length)s."""

    incarnation: int
    regions: frozenset[tuple[int, int]]


class FinishedRead:
    """A read that ended when it was posted, well or with `error`."""

    def __init__(self, error: TransportError | None = None) -> None:
        self._error = error

    def done(self) -> bool:
        return True

    def wait(self, timeout_seconds: float) -> None:
        if self._error is not None:
            raise self._error


class InprocTransport:
    """An agent known by its name to all others of this process."""

    def __init__(self, agent_name: str) -> None:
        self._name = agent_name
        self._incarnation = next(_incarnations)
        self._lock = threading.RLock()
        self._regions: dict[tuple[int, int], InprocRegion] = {}
        self._known: dict[str, _InprocDescriptor] = {}
        self._peers = PeerTable(self._load)
        self._closed = False
        with _agents_lock:
            if agent_name in _agents:
                raise TransportUnavailableError(
                    f"an agent named {agent_name!r} already runs in this process",
                    hint="use a different name for each agent",
                )
            _agents[agent_name] = self

    @property
    def properties(self) -> TransportProperties:
        return _PROPERTIES

    @property
    def agent_name(self) -> str:
        return self._name

    def names(self, host: str = "") -> Sequence[str]:
        return (_PROPERTIES.name,)

    def listen(self, host: str, port: int, *, strict_port: bool = False) -> None:
        """Do nothing: peers are in this process."""

    def register(self, memory: LocalMemory) -> Region:
        region = InprocRegion(self, view_of_dram(memory, _PROPERTIES))
        with self._lock:
            self._check_open()
            self._regions[region.addr, region.length] = region
        return region

    def descriptor(self) -> bytes:
        with self._lock:
            self._check_open()
            document = {
                "transport": _PROPERTIES.name,
                "agent": self._name,
                "incarnation": self._incarnation,
                "regions": sorted(self._regions),
            }
        return json.dumps(document).encode()

    def descriptors(self) -> dict[str, bytes]:
        return {_PROPERTIES.name: self.descriptor()}

    def connect(self, descriptor: bytes, host: str = "") -> Peer:
        with self._lock:
            self._check_open()
            return self._peers.connect(descriptor)

    def _load(self, descriptor: bytes) -> str:
        name, announced = _parse(descriptor)
        if _running(name, announced.incarnation) is None:
            raise PeerLostError(f"agent {name!r} is no longer in this process")
        known = self._known.get(name)
        if known is not None and known.incarnation == announced.incarnation:
            announced = _InprocDescriptor(known.incarnation, known.regions | announced.regions)
        self._known[name] = announced
        return name

    def post_read(
        self, peer: Peer, source: Sequence[RemoteRange], target: Sequence[tuple[Region, int]]
    ) -> PendingRead:
        check_ranges(source, target, _PROPERTIES)
        with self._lock:
            self._check_open()
            known = self._known.get(peer.name)
            own: dict[Region, memoryview] = {
                region: region.view for region in self._regions.values()
            }
        if any(region not in own for region, _ in target):
            raise ValueError("a target region is closed or belongs to another transport")
        if known is None:
            raise TransportError(f"agent {peer.name!r} is not connected")
        for wanted in source:
            if not any(_fits(wanted, addr, length) for addr, length in known.regions):
                raise TransportError(
                    f"{wanted} is outside the memory that agent {peer.name!r} registered"
                )
        remote = _running(peer.name, known.incarnation)
        if remote is None:
            self._peers.drop(peer.name)
            return FinishedRead(PeerLostError(f"agent {peer.name!r} is no longer in this process"))
        try:
            for wanted, (region, offset) in zip(source, target, strict=True):
                remote.copy_out(wanted, own[region], offset)
        except TransportError as error:
            return FinishedRead(error)
        return FinishedRead()

    def copy_out(self, wanted: RemoteRange, target: memoryview, offset: int) -> None:
        """Copy `wanted` of this agent's memory to `target` at `offset`, for a reading peer."""
        with self._lock:
            found = [r for r in self._regions.values() if _fits(wanted, r.addr, r.length)]
        try:
            start = wanted.addr - found[0].addr
            # A slice assignment holds the interpreter lock, so no region can close in between.
            target[offset : offset + wanted.length] = found[0].view[start : start + wanted.length]
        except (IndexError, ValueError):
            raise PeerLostError(f"agent {self._name!r} deregistered {wanted}") from None

    def forget_region(self, region: InprocRegion) -> None:
        """Stop serving `region`."""
        with self._lock:
            if self._regions.get((region.addr, region.length)) is region:
                del self._regions[region.addr, region.length]

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._regions.clear()
            self._known.clear()
        with _agents_lock:
            if _agents.get(self._name) is self:
                del _agents[self._name]

    def _check_open(self) -> None:
        if self._closed:
            raise TransportError(f"agent {self._name!r} is closed")


def _fits(wanted: RemoteRange, addr: int, length: int) -> bool:
    inside = addr <= wanted.addr and wanted.addr + wanted.length <= addr + length
    return inside and (wanted.kind, wanted.device_id) == (MemoryKind.DRAM, 0)


def _running(name: str, incarnation: int) -> InprocTransport | None:
    with _agents_lock:
        agent = _agents.get(name)
    return agent if agent is not None and agent._incarnation == incarnation else None


def _parse(descriptor: bytes) -> tuple[str, _InprocDescriptor]:
    try:
        document = json.loads(descriptor)
        if document["transport"] != _PROPERTIES.name:
            raise ValueError(f"it is for the transport {document['transport']!r}")
        regions = frozenset((int(addr), int(length)) for addr, length in document["regions"])
        return str(document["agent"]), _InprocDescriptor(int(document["incarnation"]), regions)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise TransportError(f"the agent descriptor is damaged: {error}") from error
