"""A bundle's member index: where each member is in the bundle, known before any byte is read.

A source sends it. A target accepts it for one reason only: the checksums of the headers that the
target makes from it (docs/format.md allows only one form), of the contents and of the padding
between them join to the bundle's checksum in the manifest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, compress
from typing import NamedTuple

from mx_artifacts.bulk.headers import MemberColumns, join_first
from mx_artifacts.bundle.headers import (
    END_OF_ARCHIVE,
    TAR_BLOCK_BYTES,
    encode_member,
    padding_bytes,
    safe_mode,
)
from mx_artifacts.bundle.member_paths import check_paths
from mx_artifacts.bundle.memory import BundleMemory
from mx_artifacts.bundle.packed import PackedMembers
from mx_artifacts.bundle.scan import DEFAULT_LIMITS, BundleLimits
from mx_artifacts.core.chunks import MIB, file_ranges
from mx_artifacts.core.digest import crc32c, crc32c_hex, crc32c_join
from mx_artifacts.core.foreign_text import shown
from mx_artifacts.core.member_index import MemberIndex
from mx_artifacts.errors import ManifestInvalidError

CHECKSUM_UNIT_BYTES = 4 * MIB
"""A longer content has checksums of its blocks too, so that each can be verified when it comes.
Large enough to be read at full speed; small enough to be in flight several times, and for targets
that serve each other to have different ones soon."""


_PADDING = memoryview(bytes(TAR_BLOCK_BYTES))


class MappedMember(NamedTuple):
    """A member as `BundleMember` has it, and what else is known before it comes.

    `checksum` is the content's CRC32C, and `blocks` those of its blocks, where it has more than
    one; `start` is where its header begins in the bundle.
    """

    path: str
    is_dir: bool
    size: int
    mode: int
    mtime_ns: int
    offset: int
    checksum: int
    blocks: tuple[int, ...]
    start: int


@dataclass(frozen=True)
class BundleMap:
    """A bundle's members in their order, and the index they are from; `length` is the bundle's
    [bytes]."""

    members: tuple[MappedMember, ...]
    index: MemberIndex
    length: int

    def headers(self) -> Iterator[tuple[int, bytes]]:
        """Yield what the bundle holds beside contents and zeros, and where."""
        for path, is_dir, size, mode, mtime_ns, _, _, _, start in self.members:
            yield (
                start,
                encode_member(path, is_dir=is_dir, size=size, mode=mode, mtime_ns=mtime_ns),
            )


def index_of(members: PackedMembers, memory: BundleMemory) -> MemberIndex:
    """Return the index of a bundle that was packed into `memory`."""
    places = enumerate(zip(members.offsets, members.columns.sizes, strict=True))
    blocks = {
        number: _blocks(offset, size, memory)
        for number, (offset, size) in places
        if size > CHECKSUM_UNIT_BYTES
    }
    return MemberIndex.of((*members.columns.columns(), members.checksums), blocks)


def _blocks(start: int, size: int, memory: BundleMemory) -> tuple[int, ...]:
    content = memory.view[start : start + size]
    blocks = []
    for offset, length in file_ranges(size, CHECKSUM_UNIT_BYTES):
        blocks.append(crc32c(content[offset : offset + length]))
        memory.written(start + offset, length)  # reading has brought it back into memory
    return tuple(blocks)


def map_bundle(
    index: MemberIndex,
    bundle_bytes: int,
    checksum: str,
    limits: BundleLimits = DEFAULT_LIMITS,
) -> BundleMap:
    """Return the positions of all members, if `index` is the index of the bundle.

    The bundle has `bundle_bytes` and, by its manifest, the CRC32C `checksum` in hex.

    Raises:
        ManifestInvalidError: it is the index of another bundle, or not an index.
        UnsafePathError, BundleError: a member would leave its root, or there are too many.
    """
    check_paths(index.paths, index.are_dirs, limits.max_members, limits.max_names_bytes)
    if any(size > bundle_bytes for size in index.sizes):  # before anybody counts its blocks
        raise ManifestInvalidError("a member of the index is longer than the bundle")
    _check_blocks(index)
    index = _as_packed(index)
    starts, offsets, end, joined = _join(index)
    end += len(END_OF_ARCHIVE)
    joined = crc32c(END_OF_ARCHIVE, joined)
    if (end, crc32c_hex(joined)) != (bundle_bytes, checksum):
        raise ManifestInvalidError(
            f"the member index describes {end} bytes with the checksum {crc32c_hex(joined)}, "
            f"the bundle has {bundle_bytes} with {checksum}"
        )
    *fields, checksums = index.columns()
    blocks = [index.blocks.get(number, ()) for number in range(len(index))]
    rows = zip(*fields, offsets, checksums, blocks, starts, strict=True)
    return BundleMap(tuple(map(MappedMember._make, rows)), index, bundle_bytes)


def _as_packed(index: MemberIndex) -> MemberIndex:
    """Return an index with the sizes and modes that members have in a bundle."""
    if any(compress(index.sizes, index.are_dirs)):
        sizes = zip(index.sizes, index.are_dirs, strict=True)
        index = replace(index, sizes=[0 if is_dir else size for size, is_dir in sizes])
    kinds = set(zip(index.modes, index.are_dirs, strict=True))
    if any(safe_mode(mode, is_dir) != mode for mode, is_dir in kinds):
        index = replace(index, modes=list(map(safe_mode, index.modes, index.are_dirs)))
    return index


def _join(index: MemberIndex) -> tuple[list[int], list[int], int, int]:
    """Return where headers and contents begin, where the last ends, and the CRC32C up to there."""
    *fields, checksums = index.columns()
    plain, joined = join_first(MemberColumns(*fields), checksums)
    # Up to a member that has more than one block of headers; from there on they are made here.
    blocks = [TAR_BLOCK_BYTES + size + padding_bytes(size) for size in index.sizes[:plain]]
    starts = list(accumulate(blocks, initial=0))
    end = starts.pop()
    offsets = [start + TAR_BLOCK_BYTES for start in starts]
    for path, is_dir, size, mode, mtime_ns, content in zip(
        *(column[plain:] for column in index.columns()), strict=True
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


def _check_blocks(index: MemberIndex) -> None:
    """Refuse blocks that are not those of the content, and any where one checksum says it all."""
    long = {number for number, size in enumerate(index.sizes) if size > CHECKSUM_UNIT_BYTES}
    for number in sorted(long | index.blocks.keys()):
        blocks = index.blocks.get(number, ())
        lengths = [length for _, length in file_ranges(index.sizes[number], CHECKSUM_UNIT_BYTES)]
        good = len(lengths) == len(blocks) > 1 and not index.are_dirs[number]
        joined = 0
        if good:
            for block, length in zip(blocks, lengths, strict=True):
                joined = crc32c_join(joined, block, length)
        if not good or joined != index.checksums[number]:
            raise ManifestInvalidError(
                f"the block checksums of member '{shown(index.paths[number])}' do not match its "
                "content"
            )
