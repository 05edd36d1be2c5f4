"""The result of a pack, and what the next pack of the same cache can take from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from mx_artifacts.bulk.headers import MemberColumns
from mx_artifacts.bundle.layout import EntryLayout, member_columns
from mx_artifacts.bundle.memory import BundleMemory
from mx_artifacts.bundle.placement import EntryPlacement, start_of
from mx_artifacts.bundle.rules import PackRules
from mx_artifacts.bundle.tree import SkippedPath, SourceMember

M = TypeVar("M", bound=BundleMemory)


@dataclass(frozen=True)
class PackReport:
    """What went into a bundle. `content_bytes` sums the files, `bundle_bytes` is its size.

    `paths` are those of all members, directories included, in their order.
    """

    file_count: int
    content_bytes: int
    bundle_bytes: int
    skipped: tuple[SkippedPath, ...]
    paths: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class PackedMembers:
    """A bundle's members in their order, as columns of one length.

    `offsets`: where each one's content begins in the bundle [bytes]; `checksums`: its CRC32C.
    """

    columns: MemberColumns
    offsets: Sequence[int]
    checksums: Sequence[int]


@dataclass(frozen=True, slots=True)
class PackedEntry:
    """An entry of a bundle, under what stamps it was read, and where it begins there.

    Its layout has no headers any more: they are in the bundle.
    """

    layout: EntryLayout
    checksums: Sequence[int]
    start: int


@dataclass(frozen=True)
class PackedTree(Generic[M]):
    """A bundle, which is all of `memory`. The owner of this object closes `memory`.

    `entries` (by name), `root` (without links) and `rules` are what a later pack of the same cache
    needs to find the entries that have not changed.
    """

    memory: M
    members: PackedMembers
    report: PackReport
    root: str
    rules: PackRules = field(repr=False)
    entries: Mapping[str, PackedEntry] = field(repr=False)


def report_of(members: MemberColumns, length: int, skipped: Iterable[SkippedPath]) -> PackReport:
    """Return the report of a bundle of `length` bytes."""
    return PackReport(
        members.are_dirs.count(False),
        sum(members.sizes),
        length,
        tuple(sorted(skipped, key=lambda skip: skip.path)),
        tuple(members.paths),
    )


def packed_entries(places: Iterable[EntryPlacement]) -> Mapping[str, PackedEntry]:
    """Return what to remember of entries that have been brought into one piece."""
    entries = {}
    for place in places:
        layout = replace(place.layout, headers=())
        entries[layout.entry] = PackedEntry(layout, place.checksums, start_of(place))
    return entries


def packed_members(places: Iterable[EntryPlacement], rules: PackRules) -> PackedMembers:
    """Return the members of entries that have been brought into one piece."""
    members: list[SourceMember] = []
    offsets: list[int] = []
    checksums: list[int] = []
    for place in places:
        start = start_of(place)
        members += place.layout.members
        offsets += [start + offset for offset in place.layout.offsets]
        checksums += place.checksums
    return PackedMembers(member_columns(members, rules), offsets, checksums)
