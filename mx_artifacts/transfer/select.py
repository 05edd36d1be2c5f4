"""In which order to try sources that are all right."""

from __future__ import annotations

import hashlib
import logging
import random
import socket
from collections.abc import Callable, Sequence

from mx_artifacts.core.sources import SourceRef

logger = logging.getLogger(__name__)


def _random(candidates: Sequence[SourceRef], target: str, rng: random.Random) -> list[SourceRef]:
    return rng.sample(candidates, len(candidates))


def _rendezvous_hash(
    candidates: Sequence[SourceRef], target: str, rng: random.Random
) -> list[SourceRef]:
    def score(ref: SourceRef) -> bytes:
        key = "|".join((target, ref.mx_source_id, ref.worker_id, str(ref.worker_rank)))
        return hashlib.sha256(key.encode()).digest()

    return sorted(candidates, key=score, reverse=True)


_SELECTORS: dict[str, Callable[[Sequence[SourceRef], str, random.Random], list[SourceRef]]] = {
    "random": _random,
    "rendezvous_hash": _rendezvous_hash,
}


def ordering(
    selector: str, rng: random.Random, target: str | None = None
) -> Callable[[Sequence[SourceRef]], list[SourceRef]]:
    """Return a function that puts candidates in order, the first to be tried first.

    Args:
        selector: "random", or "rendezvous_hash": every target has an order of its own that stays
            the same over restarts and changes little when sources come and go. An unknown name
            is random with a warning, as deployed operators have it.
        target: names this target, the same after a restart; the host name when not given. Only
            "rendezvous_hash" looks at it.
    """
    order = _SELECTORS.get(selector)
    if order is None:
        logger.warning(
            "source selector %r is not one of %s; using random", selector, ", ".join(_SELECTORS)
        )
        order = _random
    name = socket.gethostname() if target is None else target
    return lambda candidates: order(candidates, name, rng)
