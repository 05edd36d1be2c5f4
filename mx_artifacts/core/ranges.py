"""Which bytes of a bundle are there."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class Ranges:
    """A set of byte positions, as ranges from a start up to, not including, an end."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in sorted(ranges):  # so that each is added at the end
            self.add(start, end)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield the ranges in their order; no two touch."""
        return iter(list(zip(self._starts, self._ends, strict=True)))

    def add(self, start: int, end: int) -> None:
        """Put in the positions from `start` up to `end`."""
        if start >= end:
            return
        first = bisect_left(self._ends, start)
        last = bisect_right(self._starts, end)
        if first < last:  # it touches those from first up to last
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def has(self, start: int, end: int) -> bool:
        """Return whether all positions from `start` up to `end` are in it."""
        if start >= end:
            return True
        at = bisect_right(self._starts, start) - 1
        return at >= 0 and self._ends[at] >= end
