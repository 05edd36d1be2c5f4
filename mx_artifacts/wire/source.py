"""Messages of our SourceService <-> core."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from mx_artifacts.core.ranges import Ranges
from mx_artifacts.wire.gen.mx_artifacts.v1 import source_pb2 as pb

MEMBERS_PER_PAGE = 4096
"""Some 400 kB a page."""
MAX_PAGE_PATHS_BYTES = 2 * 1024 * 1024
"""Keeps a page of the longest paths below gRPC's limit of 4 MiB."""

Entry = tuple[str, bool, int, int, int, int, tuple[int, ...]]
"""As `bundle.index.IndexEntry`: path, is_dir, size, mode, mtime_ns, checksum, blocks."""


def artifact_to_wire(mx_source_id: str, artifact_id: str) -> pb.Artifact:
    return pb.Artifact(mx_source_id=mx_source_id, artifact_id=artifact_id)


def index_to_wire(file_index: int, entries: Iterable[Entry]) -> Iterator[pb.MemberIndexPage]:
    """Yield a bundle's index in pages."""
    left = iter(entries)
    while members := list(_page(left)):
        yield pb.MemberIndexPage(file_index=file_index, members=members)


def _page(left: Iterator[Entry]) -> Iterator[pb.IndexedMember]:
    paths_bytes = 0
    for path, is_dir, size, mode, mtime_ns, checksum, blocks in islice(left, MEMBERS_PER_PAGE):
        yield pb.IndexedMember(
            path=path,
            is_directory=is_dir,
            size=size,
            mode=mode,
            mtime_ns=mtime_ns,
            crc32c=checksum,
            block_crc32c=blocks,
        )
        paths_bytes += len(path) + 4 * len(blocks)
        if paths_bytes > MAX_PAGE_PATHS_BYTES:
            return


def index_from_wire(page: pb.MemberIndexPage) -> Iterator[Entry]:
    """Yield what a page states: unchecked claims."""
    for each in page.members:
        yield (
            each.path,
            each.is_directory,
            each.size,
            each.mode,
            each.mtime_ns,
            each.crc32c,
            tuple(each.block_crc32c),
        )


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
