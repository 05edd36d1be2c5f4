"""Spans: the ranges of a bundle that are read in one step, and verified before anyone uses them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from mx_artifacts.bulk.compare import first_damaged
from mx_artifacts.bundle.index import CHECKSUM_UNIT_BYTES, MappedMember
from mx_artifacts.bundle.scan import BundleMember
from mx_artifacts.core.chunks import file_ranges
from mx_artifacts.core.digest import crc32c, crc32c_hex
from mx_artifacts.core.foreign_text import shown
from mx_artifacts.core.manifest import ManifestChunk

MAX_SPAN_BYTES = CHECKSUM_UNIT_BYTES
MIN_SPAN_BYTES = 64 * 1024
SPANS_IN_BUNDLE = 64
"""So many at least, unless they fall below `MIN_SPAN_BYTES`: targets that serve each other shall
have different ones soon (docs/performance.md). By the bundle's length, so that all cut alike."""
MAX_GAP_BYTES = 64 * 1024
"""Bytes between two wanted parts that are read along, since another read would cost as much:
a few tens of microseconds at some GB/s."""


class Part(NamedTuple):
    """`length` bytes of a member's content from `position` on, and their CRC32C."""

    member: BundleMember | MappedMember
    position: int
    length: int
    checksum: int

    @property
    def offset(self) -> int:
        """Its position in the bundle."""
        return self.member.offset + self.position


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """`length` bytes [> 0] of bundle `file_index` from `offset` on.

    It has `parts`, each verified by itself, or else is one chunk of the manifest as a whole.
    """

    file_index: int
    offset: int
    length: int
    parts: tuple[Part, ...] = ()
    chunk: ManifestChunk | None = None

    @property
    def end(self) -> int:
        return self.offset + self.length

    def with_parts(self, parts: Sequence[Part]) -> Span:
        """Return the same bytes with some of the parts only."""
        return replace(self, parts=tuple(parts))

    def content_of(self, part: Part, data: memoryview) -> memoryview:
        """Return the bytes of one of its parts, of `data`, the span's."""
        start = part.offset - self.offset
        return data[start : start + part.length]

    def damage(self, data: memoryview) -> str:
        """Say which part of `data` is not what was sealed, or ""."""
        if self.chunk is not None:
            actual, wanted = crc32c_hex(crc32c(data)), self.chunk.checksum
            same = actual == wanted
            return "" if same else f"chunk {self.chunk.chunk_index}: {actual} for {wanted}"
        lengths = array("q", [part.length for part in self.parts])
        checksums = array("q", [part.checksum for part in self.parts])
        damaged = first_damaged(data, self.starts(), lengths, checksums)
        if damaged is None:
            return ""
        part = self.parts[damaged]
        actual, wanted = crc32c_hex(crc32c(self.content_of(part, data))), crc32c_hex(part.checksum)
        return f"'{shown(part.member.path)}' at {part.position}: {actual} for {wanted}"

    def starts(self) -> array[int]:
        """Return where each of its parts begins in it."""
        begin = self.offset
        return array("q", [p.member.offset + p.position - begin for p in self.parts])


def parts_of(member: MappedMember) -> list[Part]:
    """Cut a member's content into parts; a directory and an empty file have none."""
    if not member.blocks:
        return [Part(member, 0, member.size, member.checksum)] if member.size else []
    ranges = file_ranges(member.size, CHECKSUM_UNIT_BYTES)
    return [
        Part(member, offset, length, checksum)
        for (offset, length), checksum in zip(ranges, member.blocks, strict=True)
    ]


def spans_of(file_index: int, parts: Iterable[Part], bundle_bytes: int) -> Iterator[Span]:
    """Gather parts, which come in the order of their offsets, into spans.

    A part that is longer than a span should be is one by itself.
    """
    span_bytes = min(MAX_SPAN_BYTES, max(MIN_SPAN_BYTES, bundle_bytes // SPANS_IN_BUNDLE))
    gathered: list[Part] = []
    start = end = 0
    for part in parts:
        offset = part.offset
        if not gathered:
            start = offset
        elif offset + part.length - start > span_bytes or offset - end > MAX_GAP_BYTES:
            yield _span(file_index, gathered)
            gathered, start = [], offset
        gathered.append(part)
        end = offset + part.length
    if gathered:
        yield _span(file_index, gathered)


def _span(file_index: int, parts: list[Part]) -> Span:
    start, last = parts[0].offset, parts[-1]
    return Span(file_index, start, last.offset + last.length - start, tuple(parts))


def span_of_chunk(chunk: ManifestChunk) -> Span:
    """Return a chunk as a span."""
    return Span(chunk.file_index, chunk.file_offset, chunk.length, chunk=chunk)
