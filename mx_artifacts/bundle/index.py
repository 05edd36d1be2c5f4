"""A bundle's member index: what lies where in it, known before a byte of it is read.

A source hands it out, and a target believes it for one reason: the headers that it makes from it
(docs/format.md knows one form only), the checksums of contents and the padding between them join
to the checksum that the manifest has for the bundle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from mx_artifacts.bulk.headers import MemberColumns, join_first
from mx_artifacts.bundle.headers import BLOCK_BYTES as TAR_BLOCK_BYTES
from mx_artifacts.bundle.headers import (
    END_OF_ARCHIVE,
    encode_member,
    padding_bytes,
    safe_mode,
)
from mx_artifacts.bundle.member_paths import check_paths
from mx_artifacts.bundle.memory import BundleMemory
from mx_artifacts.bundle.packed import PackedMember
from mx_artifacts.bundle.scan import DEFAULT_LIMITS, BundleLimits, BundleMember
from mx_artifacts.core.chunks import MIB, file_ranges
from mx_artifacts.core.digest import crc32c, crc32c_hex, crc32c_join
from mx_artifacts.errors import ManifestInvalidError

BLOCK_BYTES = 4 * MIB
"""A longer content has checksums of its blocks too, so that each can be verified when it comes.
Large enough to be read at full speed; small enough to be in flight several times, and for targets
that serve each other to have different ones soon."""


_PADDING = memoryview(bytes(TAR_BLOCK_BYTES))


class IndexEntry(NamedTuple):
    """A member as a source states it; sizes in bytes, checksums CRC32C."""

    path: str
    is_dir: bool
    size: int
    mode: int
    mtime_ns: int
    checksum: int
    blocks: tuple[int, ...] = ()


class MappedMember(NamedTuple):
    """A member and the bytes of its header, which begin at `start` in the bundle."""

    member: BundleMember
    checksum: int
    blocks: tuple[int, ...]
    start: int


@dataclass(frozen=True)
class BundleMap:
    """A bundle's members in their order; `length` is the bundle's [bytes]."""

    members: tuple[MappedMember, ...]
    length: int

    def headers(self) -> Iterator[tuple[int, bytes]]:
        """Yield what the bundle holds beside contents and zeros, and where."""
        for each in self.members:
            member = each.member
            yield (
                each.start,
                encode_member(
                    member.path,
                    is_dir=member.is_dir,
                    size=member.size,
                    mode=member.mode,
                    mtime_ns=member.mtime_ns,
                ),
            )

    def index(self) -> tuple[IndexEntry, ...]:
        """Return the index that this is the map of."""
        return tuple(_entry(each.member, each.checksum, each.blocks) for each in self.members)


def index_of(members: Iterable[PackedMember], memory: BundleMemory) -> tuple[IndexEntry, ...]:
    """Return the index of a bundle that was packed into `memory`."""
    return tuple(
        _entry(
            each.member,
            each.checksum,
            _blocks(each.member, memory) if each.member.size > BLOCK_BYTES else (),
        )
        for each in members
    )


def _entry(member: BundleMember, checksum: int, blocks: tuple[int, ...]) -> IndexEntry:
    return IndexEntry(
        member.path, member.is_dir, member.size, member.mode, member.mtime_ns, checksum, blocks
    )


def _blocks(member: BundleMember, memory: BundleMemory) -> tuple[int, ...]:
    content = memory.view[member.offset : member.offset + member.size]
    blocks = []
    for offset, length in file_ranges(member.size, BLOCK_BYTES):
        blocks.append(crc32c(content[offset : offset + length]))
        memory.written(member.offset + offset, length)  # reading has brought it back into memory
    return tuple(blocks)


def map_bundle(
    entries: Sequence[IndexEntry],
    bundle_bytes: int,
    checksum: str,
    limits: BundleLimits = DEFAULT_LIMITS,
) -> BundleMap:
    """Return where everything lies, if `entries` are the index of a bundle.

    The bundle has `bundle_bytes` and, by its manifest, the CRC32C `checksum` in hex.

    Raises:
        ManifestInvalidError: they are the index of another bundle, or of none.
        UnsafePathError, BundleError: a member would leave its root, or there are too many.
    """
    rows: Iterable[Any] = zip(*entries, strict=True) if entries else ((),) * len(IndexEntry._fields)
    paths, are_dirs, sizes, modes, mtimes_ns, checksums, blocks = rows
    check_paths(paths, are_dirs, limits.max_members, limits.max_names_bytes)
    for entry in entries:
        if entry.blocks or entry.size > BLOCK_BYTES:
            _check_blocks(entry)
    sizes = [0 if is_dir else size for size, is_dir in zip(sizes, are_dirs, strict=True)]
    if any(not 0 <= size <= bundle_bytes for size in sizes):
        raise ManifestInvalidError("the member index has a content longer than the bundle")
    modes = list(map(safe_mode, modes, are_dirs))
    columns = MemberColumns(paths, are_dirs, sizes, modes, mtimes_ns)
    starts, offsets, end, joined = _join(columns, checksums)
    end += len(END_OF_ARCHIVE)
    joined = crc32c(END_OF_ARCHIVE, joined)
    if (end, crc32c_hex(joined)) != (bundle_bytes, checksum):
        raise ManifestInvalidError(
            f"the member index describes {end} bytes with the checksum {crc32c_hex(joined)}, "
            f"the bundle has {bundle_bytes} with {checksum}"
        )
    rows = zip(*columns.columns(), offsets, strict=True)
    members = map(BundleMember._make, rows)
    mapped = zip(members, checksums, blocks, starts, strict=True)
    return BundleMap(tuple(map(MappedMember._make, mapped)), bundle_bytes)


def _join(
    members: MemberColumns, checksums: Sequence[int]
) -> tuple[list[int], list[int], int, int]:
    """Return where headers and contents begin, where the last ends, and the CRC32C up to there."""
    plain, joined = join_first(members, checksums)
    # Up to a member that has more than one block of headers; from there on they are made here.
    blocks = [TAR_BLOCK_BYTES + size + padding_bytes(size) for size in members.sizes[:plain]]
    starts = list(accumulate(blocks, initial=0))
    end = starts.pop()
    offsets = [start + TAR_BLOCK_BYTES for start in starts]
    for path, is_dir, size, mode, mtime_ns, content in zip(
        *(column[plain:] for column in (*members.columns(), checksums)), strict=True
    ):
        header = encode_member(path, is_dir=is_dir, size=size, mode=mode, mtime_ns=mtime_ns)
        joined = crc32c(header, joined)
        starts.append(end)
        offsets.append(end + len(header))
        end = offsets[-1] + size
        if size:
            padding = padding_bytes(size)
            joined = crc32c(_PADDING[:padding], crc32c_join(joined, content, size))
            end += padding
    return starts, offsets, end, joined


def _check_blocks(entry: IndexEntry) -> None:
    """Refuse blocks that are not those of the content, and any where one checksum says it all."""
    lengths = [length for _, length in file_ranges(entry.size, BLOCK_BYTES)]
    good = len(lengths) == len(entry.blocks) > 1 and not entry.is_dir
    joined = 0
    if good:
        for block, length in zip(entry.blocks, lengths, strict=True):
            joined = crc32c_join(joined, block, length)
    if not good or joined != entry.checksum:
        raise ManifestInvalidError(
            f"the blocks of member {entry.path!r} are not those of its content"
        )
