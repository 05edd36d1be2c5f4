"""Conversion between messages of our SourceService and core types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice

from mx_artifacts.core.manifest import ArtifactRef
from mx_artifacts.core.member_index import MemberIndex
from mx_artifacts.core.ranges import Ranges
from mx_artifacts.errors import ManifestInvalidError
from mx_artifacts.wire.gen.mx_artifacts.v1 import source_pb2 as pb

MEMBERS_PER_PAGE = 4096
"""Some 400 kB a page."""
MAX_PAGE_PATHS_BYTES = 2 * 1024 * 1024
"""Keeps a page of the longest paths below gRPC's limit of 4 MiB."""
_COUNTED_MEMBERS = 128
"""So many more may be in a page: at most half a megabyte of paths."""


MAX_AVAILABLE_RANGES = 1 << 16
"""Maximum number of ranges that a seed can have, as no two touch: of 256 GiB every other span."""


def artifact_to_wire(artifact: ArtifactRef) -> pb.Artifact:
    return pb.Artifact(mx_source_id=artifact.mx_source_id, artifact_id=artifact.artifact_id)


def index_to_wire(file_index: int, index: MemberIndex) -> Iterator[pb.MemberIndexPage]:
    """Yield a bundle's index in pages."""
    start = paths_bytes = 0
    for end in range(_COUNTED_MEMBERS, len(index) + _COUNTED_MEMBERS, _COUNTED_MEMBERS):
        paths_bytes += sum(map(len, index.paths[end - _COUNTED_MEMBERS : end]))
        is_last = end >= len(index)
        if is_last or end - start >= MEMBERS_PER_PAGE or paths_bytes > MAX_PAGE_PATHS_BYTES:
            yield _page(file_index, index.part(start, end))
            start, paths_bytes = end, 0


class EncodedIndexes:
    """The member indexes of an artifact as messages, made once, however many targets ask."""

    def __init__(self, indexes: Mapping[int, MemberIndex]) -> None:
        self.pages: Sequence[pb.MemberIndexPage] = [
            page
            for file_index, index in indexes.items()
            for page in index_to_wire(file_index, index)
        ]


def _page(file_index: int, index: MemberIndex) -> pb.MemberIndexPage:
    blocks = [index.blocks.get(number, ()) for number in range(len(index))]
    return pb.MemberIndexPage(
        file_index=file_index,
        paths=index.paths,
        directories=index.are_dirs,
        sizes=index.sizes,
        modes=index.modes,
        mtimes_ns=index.mtimes_ns,
        crc32c=index.checksums,
        block_counts=map(len, blocks),
        block_crc32c=chain.from_iterable(blocks),
    )


def index_from_wire(page: pb.MemberIndexPage) -> MemberIndex:
    """Return what a page states: unchecked claims.

    Raises:
        ManifestInvalidError: its columns have different lengths.
    """
    columns = (
        page.paths,
        page.directories,
        page.sizes,
        page.modes,
        page.mtimes_ns,
        page.crc32c,
    )
    counts = page.block_counts
    lengths = {len(column) for column in (*columns, counts)}
    if len(lengths) > 1 or sum(counts) != len(page.block_crc32c):
        raise ManifestInvalidError("a page of the member index has columns of different lengths")
    left = iter(page.block_crc32c)
    blocks = {n: tuple(islice(left, count)) for n, count in enumerate(counts) if count}
    return MemberIndex.of([tuple(column) for column in columns], blocks)


def availability_to_wire(ranges: Mapping[int, Ranges] | None) -> pb.Availability:
    """Return what a source has, by file index; None: everything."""
    if ranges is None:
        return pb.Availability(complete=True)
    return pb.Availability(
        ranges=[
            pb.BundleRange(file_index=file_index, offset=start, length=end - start)
            for file_index, of_file in ranges.items()
            for start, end in of_file
        ]
    )


def availability_from_wire(message: pb.Availability) -> Mapping[int, Ranges] | None:
    """Return what a source has, by file index; None: everything.

    Raises:
        ManifestInvalidError: there are more than MAX_AVAILABLE_RANGES.
    """
    if message.complete:
        return None
    if len(message.ranges) > MAX_AVAILABLE_RANGES:
        raise ManifestInvalidError(
            f"{len(message.ranges)} available ranges are listed, more than {MAX_AVAILABLE_RANGES}"
        )
    pairs: dict[int, list[tuple[int, int]]] = {}
    for each in message.ranges:
        pairs.setdefault(each.file_index, []).append((each.offset, each.offset + each.length))
    return {file_index: Ranges(of_file) for file_index, of_file in pairs.items()}
