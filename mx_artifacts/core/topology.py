"""The distance between two nodes, by labels such as zone and rack that both state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

DEFAULT_LEVELS = ("region", "zone", "datacenter", "block", "rack", "host", "numa")
"""From the broadest to the narrowest: the domains of Grove's ClusterTopology, as the reference
takes them."""


def shared_depth(
    ours: Mapping[str, str], theirs: Mapping[str, str], levels: Sequence[str] = DEFAULT_LEVELS
) -> int:
    """Return the place in `levels` of the narrowest one that two nodes share; -1: none.

    A level that neither node states is skipped. The search ends at the first level that differs,
    because, for example, the number of a rack is unique within its zone only.
    """
    depth = -1
    for place, level in enumerate(levels):
        here, there = ours.get(level), theirs.get(level)
        if here != there:
            break
        if here is not None:
            depth = place
    return depth
