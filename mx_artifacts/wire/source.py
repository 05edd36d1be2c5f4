"""Messages of our SourceService <-> core."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice

from mx_artifacts.core.ranges import Ranges
from mx_artifacts.errors import ManifestInvalidError
from mx_artifacts.wire.gen.mx_artifacts.v1 import source_pb2 as pb

MEMBERS_PER_PAGE = 4096
"""Some 400 kB a page."""
MAX_PAGE_PATHS_BYTES = 2 * 1024 * 1024
"""Keeps a page of the longest paths below gRPC's limit of 4 MiB."""
_COUNTED_MEMBERS = 128
"""So many more may be in a page: at most half a megabyte of paths."""

Entry = tuple[str, bool, int, int, int, int, tuple[int, ...]]
"""As `bundle.index.IndexEntry`: path, is_dir, size, mode, mtime_ns, checksum, blocks."""


def artifact_to_wire(mx_source_id: str, artifact_id: str) -> pb.Artifact:
    return pb.Artifact(mx_source_id=mx_source_id, artifact_id=artifact_id)


def index_to_wire(file_index: int, entries: Iterable[Entry]) -> Iterator[pb.MemberIndexPage]:
    """Yield a bundle's index in pages."""
    left = iter(entries)
    members: list[Entry] = []
    paths_bytes = 0
    while some := list(islice(left, _COUNTED_MEMBERS)):
        members += some
        paths_bytes += sum(len(each[0]) + 4 * len(each[6]) for each in some)
        if len(members) >= MEMBERS_PER_PAGE or paths_bytes > MAX_PAGE_PATHS_BYTES:
            yield _page(file_index, members)
            members, paths_bytes = [], 0
    if members:
        yield _page(file_index, members)


def _page(file_index: int, members: Iterable[Entry]) -> pb.MemberIndexPage:
    paths, directories, sizes, modes, mtimes_ns, checksums, blocks = zip(*members, strict=True)
    return pb.MemberIndexPage(
        file_index=file_index,
        paths=paths,
        directories=directories,
        sizes=sizes,
        modes=modes,
        mtimes_ns=mtimes_ns,
        crc32c=checksums,
        block_counts=map(len, blocks),
        block_crc32c=chain.from_iterable(blocks),
    )


def index_from_wire(page: pb.MemberIndexPage) -> Iterator[Entry]:
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
        page.block_counts,
    )
    if len({len(column) for column in columns}) > 1 or sum(page.block_counts) != len(
        page.block_crc32c
    ):
        raise ManifestInvalidError("a page of the member index has columns of different lengths")
    left = iter(page.block_crc32c)
    blocks = (tuple(islice(left, count)) if count else () for count in page.block_counts)
    return zip(*columns[:-1], blocks, strict=True)


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
    """Return what a source has, by file index; None: everything."""
    if message.complete:
        return None
    ranges: dict[int, Ranges] = {}
    for each in message.ranges:
        ranges.setdefault(each.file_index, Ranges()).add(each.offset, each.offset + each.length)
    return ranges
