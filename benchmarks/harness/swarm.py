"""A model of many nodes that fetch one artifact at once, event by event, without moving a byte.

Every node has a link of the same rate up and down. A source's uplink is shared equally by the reads
under way (as TCP does); a target's downlink takes spans one after the other. A target leases up to
`sources` of those that discovery showed it, keeps `reads_per_source` spans of each in flight, and
learns what an incomplete source has only when it asks, every `availability_seconds`. A source
grants `leases` at once and refuses more. Not modelled: failures, unequal links, what lies between.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, Literal

Order = Literal["sequential", "random", "rarest", "rarest_of_sample"]
ORDERS: tuple[Order, ...] = ("sequential", "random", "rarest", "rarest_of_sample")


@dataclass(frozen=True)
class Service:
    """What the engine and the link take [s].

    Attributes:
        span_seconds: one span over an otherwise idle link.
        discovery_seconds: asking the central server for sources.
        attach_seconds: opening a source: its channel, its agent, its lease, its index.
        read_seconds: from asking for a span to its first byte.
        install_seconds: from the last byte to the installed cache.
    """

    span_seconds: float
    discovery_seconds: float
    attach_seconds: float
    read_seconds: float
    install_seconds: float


@dataclass(frozen=True)
class Policy:
    """How targets that read from each other choose.

    Attributes:
        sources: leases that a target holds at once.
        reads_per_source: spans that it has in flight of each.
        leases: that a source grants at once.
        sample: sources that one discovery shows, at most; drawn by chance.
        order: which of the missing spans is read next. `rarest`: which the fewest of the target's
            leased sources have; `rarest_of_sample`: of all that discovery showed.
        availability_seconds: how often an incomplete source is asked what it has.
        first_discovery_seconds: after this the central server is asked again, by a target that
            could read from more sources, then after twice as long, and so on,
        last_discovery_seconds: up to this.
    """

    sources: int = 4
    reads_per_source: int = 1
    leases: int = 4
    sample: int = 16
    order: Order = "random"
    availability_seconds: float = 0.05
    first_discovery_seconds: float = 0.1
    last_discovery_seconds: float = 0.25


def one_after_the_other(nodes: int, spans: int, service: Service) -> float:
    """Return when the last of `nodes` has installed, where only the first source serves."""
    return _ahead(service) + nodes * spans * service.span_seconds + service.install_seconds


def tree(nodes: int, spans: int, service: Service) -> float:
    """Return the same where each that has installed serves on, every source one target at a time.

    One at a time is the best case: a source that serves all at once ends with all at once, and
    nobody is there to serve on before.
    """
    alone = _ahead(service) + spans * service.span_seconds + service.install_seconds
    served, seconds = 0, 0.0
    while served < nodes:
        served += served + 1
        seconds += alone
    return seconds


def _ahead(service: Service) -> float:
    return service.discovery_seconds + service.attach_seconds + service.read_seconds


def swarm(nodes: int, spans: int, service: Service, policy: Policy, seed: int = 1) -> float:
    """Return the same where each serves what it has from its first span on."""
    return _Swarm(nodes, spans, service, policy, seed).run()


@dataclass
class _Node:
    """A source, a target, or both; spans are bits."""

    have: int = 0
    wanted: int = 0
    announced: bool = False
    # As a source: its readers, and the reads on its uplink in virtual time: each read under way
    # gets as much of it, and ends when that has reached the read's own.
    lessees: int = 0
    uplink: list[tuple[float, int, int, int]] = field(default_factory=list)
    virtual: float = 0.0
    virtual_at: float = 0.0
    version: int = 0
    # As a target: leased sources, what they had when asked, and the reads in flight of each.
    views: dict[int, int] = field(default_factory=dict)
    in_flight: dict[int, int] = field(default_factory=dict)
    known: Sequence[int] = ()
    asked_at: float = 0.0
    discovers_at: float = 0.0
    pause: float = 0.0
    waits: bool = False
    planes: list[int] = field(default_factory=list)
    downlink_free_at: float = 0.0
    done: bool = False


class _Swarm:
    """The events: (time, number, what, its arguments)."""

    def __init__(self, nodes: int, spans: int, service: Service, policy: Policy, seed: int) -> None:
        self._service = service
        self._policy = policy
        self._spans = spans
        self._chance = random.Random(seed)
        self._full = (1 << spans) - 1
        self._nodes = [_Node(wanted=self._full) for _ in range(nodes + 1)]
        self._nodes[0] = _Node(have=self._full, announced=True, done=True)
        self._announced = [0]
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0
        self._left = nodes
        self._now = 0.0

    def run(self) -> float:
        service, policy = self._service, self._policy
        for target in range(1, len(self._nodes)):
            # Nobody starts in the same millisecond, and with it in step with the others.
            self._nodes[target].pause = policy.first_discovery_seconds
            start = service.discovery_seconds * (1 + self._chance.random())
            self._at(start, self._tick, target)
        events = self._events
        while self._left:
            self._now, _, what, arguments = heappop(events)
            what(*arguments)
        return self._now + self._service.install_seconds

    def _at(self, time: float, what: Callable[..., None], *arguments: Any) -> None:
        self._number += 1
        heappush(self._events, (time, self._number, what, arguments))

    def _tick(self, index: int) -> None:
        """Let a target ask its sources what they have, change those that are of no use, go on."""
        target = self._nodes[index]
        target.waits = False
        if target.done:
            return
        policy = self._policy
        if self._now >= target.discovers_at:
            target.discovers_at = self._now + target.pause
            target.pause = min(2 * target.pause, policy.last_discovery_seconds)
            target.known = self._discover(index)
        self._ask(target)
        for source, have in list(target.views.items()):
            if not have & target.wanted and not target.in_flight.get(source):
                self._give_back(target, source)
        self._lease_more(target)
        self._count_rarity(target)
        for source in target.views:
            self._read(index, target, source)
        if len(target.views) < policy.sources:
            self._wait(index, target)

    def _ask(self, target: _Node) -> None:
        target.asked_at = self._now
        for source in target.views:
            target.views[source] = self._nodes[source].have

    def _wait(self, index: int, target: _Node) -> None:
        """Let a target that could read more ask again, as soon as it may."""
        if not target.waits:
            target.waits = True
            self._at(target.asked_at + self._policy.availability_seconds, self._tick, index)

    def _discover(self, index: int) -> Sequence[int]:
        there = self._announced
        if len(there) <= self._policy.sample:
            found = [source for source in there if source != index]
            self._chance.shuffle(found)
            return found
        return [s for s in self._chance.sample(there, self._policy.sample) if s != index]

    def _lease_more(self, target: _Node) -> None:
        policy, nodes = self._policy, self._nodes
        if len(target.views) >= policy.sources:
            return
        for source in target.known:
            if source in target.views:
                continue
            found = nodes[source]
            if found.lessees < policy.leases and found.have & target.wanted:
                found.lessees += 1
                target.views[source] = found.have
                if len(target.views) == policy.sources:
                    return

    def _give_back(self, target: _Node, source: int) -> None:
        del target.views[source]
        self._nodes[source].lessees -= 1

    def _count_rarity(self, target: _Node) -> None:
        """Count of each span who has it, all spans at once: plane i has bit i of each count."""
        order = self._policy.order
        if order == "rarest":
            masks = list(target.views.values())
        elif order == "rarest_of_sample":
            masks = [self._nodes[source].have for source in target.known]
        else:
            return
        planes: list[int] = []
        for carry in masks:
            for place, plane in enumerate(planes):
                planes[place], carry = plane ^ carry, plane & carry
                if not carry:
                    break
            if carry:
                planes.append(carry)
        target.planes = planes

    def _choose(self, target: _Node, there: int) -> int:
        """Return one of the spans `there`, as a bit."""
        if self._policy.order == "sequential":
            return there & -there
        for plane in reversed(target.planes):
            there = there & ~plane or there
        after = there >> (start := int(self._chance.random() * self._spans)) << start
        there = after or there
        return there & -there

    def _read(self, index: int, target: _Node, source: int) -> None:
        """Ask a leased source for spans until enough are in flight."""
        flying = target.in_flight.get(source, 0)
        seconds = self._service.read_seconds
        if source not in target.in_flight:
            seconds += self._service.attach_seconds
        while flying < self._policy.reads_per_source:
            there = target.views[source] & target.wanted
            if not there:
                if target.wanted:
                    self._wait(index, target)
                break
            span = self._choose(target, there)
            target.wanted ^= span
            flying += 1
            self._at(self._now + seconds, self._start, source, index, span)
        target.in_flight[source] = flying

    def _start(self, source: int, index: int, span: int) -> None:
        """Let a read begin on the uplink of its source."""
        node = self._nodes[source]
        self._advance(node)
        ends = node.virtual + self._service.span_seconds
        heappush(node.uplink, (ends, self._number, index, span))
        self._expect(source, node)

    def _advance(self, node: _Node) -> None:
        if node.uplink:
            node.virtual += (self._now - node.virtual_at) / len(node.uplink)
        node.virtual_at = self._now

    def _expect(self, source: int, node: _Node) -> None:
        node.version += 1
        if node.uplink:
            left = (node.uplink[0][0] - node.virtual) * len(node.uplink)
            self._at(self._now + max(0.0, left), self._sent, source, node.version)

    def _sent(self, source: int, version: int) -> None:
        """Let the first read on an uplink end, unless others came or went since it was expected."""
        node = self._nodes[source]
        if version != node.version:
            return
        self._advance(node)
        _, _, index, span = heappop(node.uplink)
        self._expect(source, node)
        target = self._nodes[index]
        arrives = max(self._now, target.downlink_free_at + self._service.span_seconds)
        target.downlink_free_at = arrives
        self._at(arrives, self._arrived, source, index, span)

    def _arrived(self, source: int, index: int, span: int) -> None:
        target = self._nodes[index]
        target.have |= span
        if not target.announced:
            target.announced = True
            self._announced.append(index)
        if target.have == self._full:
            target.done = True
            self._left -= 1
            for each in list(target.views):
                self._give_back(target, each)
            return
        target.in_flight[source] -= 1
        if source in target.views:
            if self._now - target.asked_at >= self._policy.availability_seconds:
                self._ask(target)
                self._count_rarity(target)
            self._read(index, target, source)
