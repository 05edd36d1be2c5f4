"""Reference-counted peers, for every transport."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable


class CountedPeer:
    """One reference to an agent."""

    def __init__(self, name: str, give_back: Callable[[str], None]) -> None:
        self._name = name
        self._give_back = give_back
        self._open = True
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return self._name

    def close(self) -> None:
        with self._lock:
            was_open, self._open = self._open, False
        if was_open:
            self._give_back(self._name)


class PeerTable:
    """Which agents are connected, by which descriptors, and how many references each has.

    An agent without references may stay connected for the next `connect`: with UCX a disconnect
    leaves a socket behind on both ends and may race with the next connect.
    """

    def __init__(self, load: Callable[[bytes], str]) -> None:
        """`load` adds what a descriptor says to the transport and returns its agent's name."""
        self._lock = threading.RLock()
        self._load = load
        self._names: dict[bytes, str] = {}
        self._references: Counter[str] = Counter()

    def connect(self, descriptor: bytes) -> CountedPeer:
        """Take a reference to the agent of `descriptor`, loading each descriptor only once.

        Raises what `load` raises.
        """
        with self._lock:
            name = self._names.get(descriptor)
            if name is None:
                name = self._names[descriptor] = self._load(descriptor)
            self._references[name] += 1
        return CountedPeer(name, self._give_back)

    def _give_back(self, name: str) -> None:
        with self._lock:
            self._references[name] -= 1

    def connected(self) -> set[str]:
        """Return the names of all agents that are connected."""
        with self._lock:
            return set(self._names.values())

    def idle(self) -> list[str]:
        """Return the names of the connected agents without a reference, the oldest first."""
        with self._lock:
            names = dict.fromkeys(self._names.values())
            return [name for name in names if not self._references[name]]

    def drop(self, name: str) -> None:
        """Forget an agent's descriptors, so that the next `connect` loads one again.

        References stay counted, and are good again after that `connect`.
        """
        with self._lock:
            self._names = {raw: agent for raw, agent in self._names.items() if agent != name}
            if not self._references[name]:
                del self._references[name]
