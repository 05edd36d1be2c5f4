"""Where entries lie in a bundle's memory, and how they close ranks when one falls out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from ctypes import memmove
from dataclasses import dataclass

from mx_artifacts.bulk.library import bytes_of
from mx_artifacts.bundle.layout import EntryLayout
from mx_artifacts.bundle.memory import BundleMemory

_BATCH_ENTRIES = 64
_BATCH_BYTES = 8 << 20
"""A batch takes each thread a few milliseconds, most of them outside the interpreter; what else is
to be done for it there, once, is little against that."""


@dataclass(eq=False)
class Place:
    """An entry that was read into `space`: bytes of the bundle from `start` on, or its own."""

    layout: EntryLayout
    start: int | None
    space: memoryview
    checksums: Sequence[int] = ()


def close_ranks(places: Sequence[Place], target: memoryview, *, in_target: bool) -> None:
    """Bring `places` into `target`, one after the other in their order, and update them.

    With `in_target` the spaces that have a start are parts of `target`, in this order.
    """
    starts: list[int] = []
    end = 0
    for place in places:
        starts.append(end)
        end += place.layout.length
    moves = [(place, start) for place, start in zip(places, starts, strict=True)]
    inside = [(p, s) for p, s in moves if in_target and p.start is not None and p.start != s]
    outside = [(p, s) for p, s in moves if not in_target or p.start is None]
    # No two may overwrite each other: down in ascending order, up in descending order, and last
    # what comes from elsewhere. Slices of one buffer are copied as by memmove.
    down = [(place, start) for place, start in inside if start < start_of(place)]
    up = [(place, start) for place, start in reversed(inside) if start > start_of(place)]
    for place, start in (*down, *up, *outside):
        space = target[start : start + place.layout.length]
        space[:] = place.space
        place.space, place.start = space, start


def copy(memory: BundleMemory, start: int, target: memoryview) -> None:
    """Fill `target` with the bytes of a bundle from `start` on, while other threads run."""
    source = memory.view[start : start + len(target)]
    if len(source) != len(target):
        raise ValueError(f"no bundle has {len(target)} bytes from {start} on")
    memmove(bytes_of(target), bytes_of(source), len(target))
    memory.written(start, len(target))  # reading may have brought it back into memory


def start_of(place: Place) -> int:
    """Return where a place begins in the bundle that it is in."""
    assert place.start is not None
    return place.start


def batches(places: Iterable[Place]) -> Iterator[list[Place]]:
    """Yield places in groups of neighbours that are worth calls of their own, and not too large."""
    batch: list[Place] = []
    length = 0
    for place in places:
        batch.append(place)
        length += place.layout.length
        if len(batch) == _BATCH_ENTRIES or length >= _BATCH_BYTES:
            yield batch
            batch, length = [], 0
    if batch:
        yield batch
