"""Places entries in a bundle's memory, and closes the gap if one is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from ctypes import memmove
from dataclasses import dataclass

from mx_artifacts.bulk.library import bytes_of
from mx_artifacts.bundle.layout import EntryLayout
from mx_artifacts.bundle.memory import BundleMemory

_BATCH_ENTRIES = 64
_BATCH_BYTES = 8 << 20
"""A batch takes each thread a few milliseconds, most of them outside the interpreter; what else is
to be done for it there, once, is little against that."""
_MOVED_BYTES = 16 << 20
"""Number of bytes that are moved at once; if a bundle is in a file, so many bytes are in memory."""
_PLAIN_BYTES = 64 << 20
"""Of plain memory that all entries together may take which do not fit where they lay."""


PartFilled = Callable[[int, int], object]
"""Called with each part (offset, length) of a space that was filled from a large file, so that the
file need not be in memory as a whole."""


@dataclass(eq=False)
class EntryPlacement:
    """An entry that was read into `space`: bytes of the bundle from `start` on, or its own."""

    layout: EntryLayout
    start: int | None
    space: memoryview
    checksums: Sequence[int] = ()


class OverflowBuffers:
    """Makes places for entries that no longer fit into their old places. One thread.

    At most 64 MiB are plain memory. Further places are in memories of the same type as that of the
    bundle, each of 64 MiB or of the size of a larger entry.
    """

    def __init__(self, allocate: Callable[[int], BundleMemory]) -> None:
        self._allocate = allocate
        self._plain_left_bytes = _PLAIN_BYTES
        self._start = 0
        self.memories: list[BundleMemory] = []

    def place(self, layout: EntryLayout) -> tuple[EntryPlacement, PartFilled]:
        """Return a place of zeros, and the function to call with the parts of it that were filled.

        Raises what `allocate` does.
        """
        length = layout.length
        if length <= self._plain_left_bytes:
            self._plain_left_bytes -= length
            return EntryPlacement(
                layout, None, memoryview(bytearray(length))
            ), lambda at, count: None
        if not self.memories or len(self.memories[-1].view) - self._start < length:
            self.memories.append(self._allocate(max(length, _PLAIN_BYTES)))
            self._start = 0
        memory, start = self.memories[-1], self._start
        self._start += length
        space = memory.view[start : start + length]
        return EntryPlacement(layout, None, space), lambda at, count: memory.written(
            start + at, count
        )

    def close(self) -> None:
        """Free what was allocated. Idempotent; the places are not looked at any more."""
        while self.memories:
            self.memories.pop().close()


def is_alike(layout: EntryLayout, other: EntryLayout) -> bool:
    """Return whether one entry overwrites all of another, as where a file was written again."""
    return _shape(layout) == _shape(other)


def _shape(layout: EntryLayout) -> tuple[int, list[int], list[int]]:
    sizes = [0 if member.is_dir else member.stamp.size for member in layout.members]
    return layout.length, list(layout.offsets), sizes


def compact(
    places: Sequence[EntryPlacement],
    memory: BundleMemory,
    sources: Sequence[BundleMemory],
    *,
    in_target: bool,
) -> None:
    """Copy `places` into `memory`, one after the other in their order, and update them.

    They are in `sources` or in plain memory. With `in_target`, the spaces that have a start are
    parts of `memory`, in this order. If bundles are in files, only a few MiB are in memory at once.
    """
    target = memory.view
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
    moved_bytes = 0
    for place, start in (*down, *up, *outside):
        space = target[start : start + place.layout.length]
        is_upwards = in_target and place.start is not None and place.start < start
        for part in _parts(len(space), backwards=is_upwards):
            space[part] = place.space[part]
            moved_bytes += part.stop - part.start
            if moved_bytes >= _MOVED_BYTES:
                moved_bytes = 0
                for each in (memory, *sources):
                    each.written(0, len(each.view))
        place.space, place.start = space, start


def _parts(length: int, *, backwards: bool) -> Iterator[slice]:
    """Yield the slices in which so many bytes are moved: none overwrites what is still to be."""
    starts = range(0, length, _MOVED_BYTES)
    for start in reversed(starts) if backwards else starts:
        yield slice(start, min(start + _MOVED_BYTES, length))


def copy(memory: BundleMemory, start: int, target: memoryview) -> None:
    """Fill `target` with the bytes of a bundle from `start` on, while other threads run."""
    source = memory.view[start : start + len(target)]
    if len(source) != len(target):
        raise ValueError(f"no bundle has {len(target)} bytes from {start} on")
    memmove(bytes_of(target), bytes_of(source), len(target))
    memory.written(start, len(target))  # reading may have brought it back into memory


def start_of(place: EntryPlacement) -> int:
    """Return where a place begins in the bundle that it is in."""
    assert place.start is not None
    return place.start


def batches(places: Iterable[EntryPlacement]) -> Iterator[list[EntryPlacement]]:
    """Yield places in groups of neighbours that are worth calls of their own, and not too large."""
    batch: list[EntryPlacement] = []
    length = 0
    for place in places:
        batch.append(place)
        length += place.layout.length
        if len(batch) == _BATCH_ENTRIES or length >= _BATCH_BYTES:
            yield batch
            batch, length = [], 0
    if batch:
        yield batch
