"""What a pack results in, and what the next one of the same cache can tell from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, NamedTuple, TypeVar

from mx_artifacts.bundle.headers import safe_mode
from mx_artifacts.bundle.layout import EntryLayout
from mx_artifacts.bundle.memory import BundleMemory
from mx_artifacts.bundle.places import Place
from mx_artifacts.bundle.rules import PackRules
from mx_artifacts.bundle.scan import BundleMember
from mx_artifacts.bundle.tree import Skipped

M = TypeVar("M", bound=BundleMemory)


@dataclass(frozen=True)
class PackReport:
    """What went into a bundle. `content_bytes` sums the files, `bundle_bytes` is its size.

    `paths` are those of all members, directories included, in their order.
    """

    file_count: int
    content_bytes: int
    bundle_bytes: int
    skipped: tuple[Skipped, ...]
    paths: tuple[str, ...] = field(default=(), repr=False)


class PackedMember(NamedTuple):
    """A member as a scan of the bundle finds it, and the CRC32C of its content."""

    member: BundleMember
    checksum: int


@dataclass(frozen=True, slots=True)
class PackedEntry:
    """An entry of a bundle, under what stamps it was read, and where it begins there.

    Its layout has no headers any more: they are in the bundle.
    """

    layout: EntryLayout
    checksums: tuple[int, ...]
    start: int


@dataclass(frozen=True)
class PackedTree(Generic[M]):
    """A bundle: all of `memory`, which whoever holds this closes.

    `entries` are by name, and with `root` (without links) and `rules` what a later pack of the same
    cache needs to tell what of it is still as it was.
    """

    memory: M
    members: tuple[PackedMember, ...]
    report: PackReport
    root: str
    rules: PackRules = field(repr=False)
    entries: Mapping[str, PackedEntry] = field(repr=False)


def report_of(
    members: Sequence[PackedMember], length: int, skipped: Iterable[Skipped]
) -> PackReport:
    """Return the report of a bundle of `length` bytes."""
    sizes = [each.member.size for each in members if not each.member.is_dir]
    return PackReport(
        len(sizes),
        sum(sizes),
        length,
        tuple(sorted(skipped, key=lambda skip: skip.path)),
        tuple(each.member.path for each in members),
    )


def packed_entries(places: Iterable[Place]) -> Mapping[str, PackedEntry]:
    """Return what to remember of entries that have been brought into one piece."""
    entries = {}
    for place in places:
        assert place.start is not None
        layout = replace(place.layout, headers=())
        entries[layout.entry] = PackedEntry(layout, place.checksums, place.start)
    return entries


def packed_members(places: Iterable[Place], rules: PackRules) -> Iterator[PackedMember]:
    """Yield the members of entries that have been brought into one piece."""
    for place in places:
        layout, start = place.layout, place.start
        assert start is not None
        for member, offset, checksum in zip(
            layout.members, layout.offsets, place.checksums, strict=True
        ):
            path, _, stamp, is_dir = member
            mode = safe_mode(stamp.mode, is_dir=is_dir)
            mtime_ns = stamp.mtime_ns if rules.keep_mtimes and not is_dir else 0
            size = 0 if is_dir else stamp.size
            yield PackedMember(
                BundleMember(path, is_dir, size, mode, mtime_ns, start + offset), checksum
            )
