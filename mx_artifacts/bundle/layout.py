"""Where each member of a bundle lies, known before a byte of it is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import add
from types import MappingProxyType

from mx_artifacts.bulk.headers import MemberColumns, first_headers
from mx_artifacts.bundle.headers import (
    END_OF_ARCHIVE,
    TAR_BLOCK_BYTES,
    encode_member,
    padding_bytes,
    safe_mode,
)
from mx_artifacts.bundle.rules import PackRules
from mx_artifacts.bundle.tree import SourceMember, SourceTree

_PLAIN_AT_ONCE = 512
_OTHERS_AT_ONCE = 32
"""Members whose headers are made in one go. Where one is not plain its neighbours are not either,
as where times are kept."""


@dataclass(frozen=True, slots=True)
class EntryLayout:
    """An entry's members and their headers, one after the other, `length` bytes in all.

    `offsets`: where each member's content begins, which is right behind its header [bytes from the
    entry's first].
    """

    entry: str
    members: tuple[SourceMember, ...]
    headers: Sequence[bytes]
    offsets: Sequence[int]
    length: int


def lay_out(
    tree: SourceTree, rules: PackRules, known: Mapping[str, EntryLayout] = MappingProxyType({})
) -> list[EntryLayout]:
    """Lay out a tree's entries in the order of their first members.

    Entries whose members are as in `known`, stamps included, get the layout that they have there.
    """
    entries: dict[str, list[SourceMember]] = {}
    entry_of = rules.entry_of
    for member in tree.members:
        entries.setdefault(entry_of(member.path), []).append(member)
    as_known = {
        entry: layout
        for entry, layout in known.items()
        if layout.members == tuple(entries.get(entry, ()))
    }
    others = {entry: each for entry, each in entries.items() if entry not in as_known}
    laid_out = as_known | {layout.entry: layout for layout in _lay_out(others, rules)}
    return [laid_out[entry] for entry in entries]


def lay_out_entry(entry: str, members: Sequence[SourceMember], rules: PackRules) -> EntryLayout:
    """Lay out one entry, of at least one member."""
    (layout,) = _lay_out({entry: members}, rules)
    return layout


def bundle_bytes(layouts: Sequence[EntryLayout]) -> int:
    """Return the size of a bundle of these entries."""
    return sum(layout.length for layout in layouts) + len(END_OF_ARCHIVE)


def _lay_out(
    entries: Mapping[str, Sequence[SourceMember]], rules: PackRules
) -> Iterator[EntryLayout]:
    columns = member_columns([each for members in entries.values() for each in members], rules)
    headers = _headers(columns)
    lengths = [
        len(header) + size + padding_bytes(size)
        for header, size in zip(headers, columns.sizes, strict=True)
    ]
    starts = list(accumulate(lengths, initial=0))
    offsets = list(map(add, starts, map(len, headers)))
    first = 0
    for entry, members in entries.items():
        stop = first + len(members)
        start, end = starts[first], starts[stop]
        its_offsets = [offset - start for offset in offsets[first:stop]]
        yield EntryLayout(entry, tuple(members), headers[first:stop], its_offsets, end - start)
        first = stop


def member_columns(members: Sequence[SourceMember], rules: PackRules) -> MemberColumns:
    """Return members as they are in a bundle."""
    are_dirs = [member.is_dir for member in members]
    stamps = [member.stamp for member in members]
    # A directory's time says when a name in it changed, locks included; that is nothing a reader of
    # the cache looks at, and would make equal trees differ.
    kept = [rules.keep_mtimes and not is_dir for is_dir in are_dirs]
    return MemberColumns(
        [member.path for member in members],
        are_dirs,
        [0 if is_dir else stamp.size for stamp, is_dir in zip(stamps, are_dirs, strict=True)],
        [safe_mode(stamp.mode, is_dir) for stamp, is_dir in zip(stamps, are_dirs, strict=True)],
        [stamp.mtime_ns if keep else 0 for stamp, keep in zip(stamps, kept, strict=True)],
    )


def _headers(columns: MemberColumns) -> list[bytes]:
    """Return each member's header."""
    headers: list[bytes] = []
    count = len(columns.paths)
    while len(headers) < count:
        start = len(headers)
        blocks = first_headers(columns.part(start, start + _PLAIN_AT_ONCE))
        headers += [
            blocks[at : at + TAR_BLOCK_BYTES] for at in range(0, len(blocks), TAR_BLOCK_BYTES)
        ]
        if len(headers) - start < min(_PLAIN_AT_ONCE, count - start):
            start = len(headers)
            rest = columns.part(start, start + _OTHERS_AT_ONCE)
            headers += [
                encode_member(path, is_dir=is_dir, size=size, mode=mode, mtime_ns=mtime_ns)
                for path, is_dir, size, mode, mtime_ns in zip(*rest.columns(), strict=True)
            ]
    return headers
