"""Decides in which order suitable sources are tried."""

from __future__ import annotations

import hashlib
import logging
import random
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mx_artifacts import settings
from mx_artifacts.core.sources import SourceRef
from mx_artifacts.core.topology import DEFAULT_LEVELS, shared_depth

logger = logging.getLogger(__name__)

UNKNOWN_LOAD = 0.5
"""Of a source that reports none, such as an older one: neither sought nor avoided, as the
reference has it."""
LOAD_STEPS = 4
"""Loads that differ by less than one of so many steps count as equal. They are as old as a
heartbeat, so targets that start together would all choose the one that was least busy then."""


@dataclass(frozen=True)
class TargetLocality:
    """The target that chooses.

    Attributes:
        target: its name, the same after a restart. Only "rendezvous_hash" looks at it.
        topology: where it is, by labels; `levels` are those that count, the broadest first.
    """

    target: str = field(default_factory=socket.gethostname)
    topology: Mapping[str, str] = field(default_factory=dict)
    levels: Sequence[str] = DEFAULT_LEVELS


Selector = Callable[[Sequence[SourceRef], TargetLocality, random.Random], list[SourceRef]]


def _random(
    candidates: Sequence[SourceRef], here: TargetLocality, rng: random.Random
) -> list[SourceRef]:
    return rng.sample(candidates, len(candidates))


def _rendezvous_hash(
    candidates: Sequence[SourceRef], here: TargetLocality, rng: random.Random
) -> list[SourceRef]:
    def score(ref: SourceRef) -> bytes:
        key = "|".join((here.target, ref.mx_source_id, ref.worker_id, str(ref.worker_rank)))
        return hashlib.sha256(key.encode()).digest()

    return sorted(candidates, key=score, reverse=True)


def _load_aware(
    candidates: Sequence[SourceRef], here: TargetLocality, rng: random.Random
) -> list[SourceRef]:
    return sorted(_random(candidates, here, rng), key=_load_step)


def _topology_aware(
    candidates: Sequence[SourceRef], here: TargetLocality, rng: random.Random
) -> list[SourceRef]:
    def distance(ref: SourceRef) -> int:
        return -shared_depth(here.topology, ref.topology, here.levels)

    return sorted(_load_aware(candidates, here, rng), key=distance)


def _load_step(ref: SourceRef) -> int:
    load = UNKNOWN_LOAD if ref.source_load is None else ref.source_load
    return round(LOAD_STEPS * min(1.0, max(0.0, load)))


SELECTORS: Mapping[str, Selector] = {
    "random": _random,
    "rendezvous_hash": _rendezvous_hash,
    "load_aware": _load_aware,
    "topology_aware": _topology_aware,
}


def ordering(
    selector: str, rng: random.Random, here: TargetLocality | None = None
) -> Callable[[Sequence[SourceRef]], list[SourceRef]]:
    """Return a function that puts candidates in order, the first to be tried first.

    Args:
        selector: "random"; "rendezvous_hash": every target has an order of its own that stays the
            same over restarts and changes little when sources come and go; "load_aware": the
            least busy first; "topology_aware": the nearest first, of equally near ones the least
            busy; ties are by chance. An unknown name is random with a warning, as deployed
            operators have it.
        here: this target; named after its host and without labels when not given.
    """
    order = SELECTORS.get(selector)
    if order is None:
        logger.warning(
            "source selector %r is not one of %s; using random", selector, ", ".join(SELECTORS)
        )
        order = _random
    at = here or TargetLocality()
    return lambda candidates: order(candidates, at, rng)


def order_of_settings() -> Callable[[Sequence[SourceRef]], list[SourceRef]]:
    """Return the order that MX_P2P_SOURCE_SELECTOR and MX_P2P_TOPOLOGY state, by `ordering`."""
    here = TargetLocality(topology=settings.TOPOLOGY.read(), levels=settings.TOPOLOGY_LEVELS.read())
    return ordering(settings.SOURCE_SELECTOR.read(), random.Random(), here)  # noqa: S311
