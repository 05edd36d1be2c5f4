"""A bundle's member index, as a source states it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class MemberIndex:
    """The members of a bundle in their order, as columns of one length.

    Ten thousands of members are some columns to make, send, check and forget, and not as many
    objects. `paths` have no "/" at their ends, `sizes` and `blocks` are in bytes, `checksums` are
    the contents' CRC32C. `blocks` has those of members that are longer than a block, by their
    number here: the CRC32C of each block.
    """

    paths: Sequence[str] = ()
    are_dirs: Sequence[bool] = ()
    sizes: Sequence[int] = ()
    modes: Sequence[int] = ()
    mtimes_ns: Sequence[int] = ()
    checksums: Sequence[int] = ()
    blocks: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.paths)

    def columns(self) -> tuple[Sequence[Any], ...]:
        """Return all columns but the blocks."""
        return (
            self.paths,
            self.are_dirs,
            self.sizes,
            self.modes,
            self.mtimes_ns,
            self.checksums,
        )

    def part(self, start: int, end: int) -> MemberIndex:
        """Return the members from `start` up to `end`."""
        blocks = {n - start: each for n, each in self.blocks.items() if start <= n < end}
        return MemberIndex.of((column[start:end] for column in self.columns()), blocks)

    @classmethod
    def of(
        cls, columns: Iterable[Sequence[Any]], blocks: Mapping[int, tuple[int, ...]]
    ) -> MemberIndex:
        """Return the index that has these `columns()`."""
        paths, are_dirs, sizes, modes, mtimes_ns, checksums = columns
        return cls(paths, are_dirs, sizes, modes, mtimes_ns, checksums, blocks)


def joined(parts: Iterable[MemberIndex]) -> MemberIndex:
    """Return the members of `parts`, one after the other."""
    columns: list[list[Any]] = [[] for _ in MemberIndex().columns()]
    blocks: dict[int, tuple[int, ...]] = {}
    for part in parts:
        start = len(columns[0])
        blocks |= {start + number: each for number, each in part.blocks.items()}
        for column, more in zip(columns, part.columns(), strict=True):
            column += more
    return MemberIndex.of(columns, blocks)
