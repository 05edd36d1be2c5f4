"""Where each member of a bundle lies, known before a byte of it is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from mx_artifacts.bundle.headers import END_OF_ARCHIVE, encode_member, padding_bytes, safe_mode
from mx_artifacts.bundle.rules import PackRules
from mx_artifacts.bundle.tree import SourceMember, SourceTree


@dataclass(frozen=True, slots=True)
class EntryLayout:
    """An entry's members and their headers, one after the other, `length` bytes in all.

    `offsets`: where each member's content begins, which is right behind its header [bytes from the
    entry's first].
    """

    entry: str
    members: tuple[SourceMember, ...]
    headers: tuple[bytes, ...]
    offsets: tuple[int, ...]
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
    layouts = []
    for entry, members in entries.items():
        layout = known.get(entry)
        if layout is None or layout.members != tuple(members):
            layout = lay_out_entry(entry, members, rules)
        layouts.append(layout)
    return layouts


def lay_out_entry(entry: str, members: Sequence[SourceMember], rules: PackRules) -> EntryLayout:
    """Lay out one entry."""
    headers: list[bytes] = []
    offsets: list[int] = []
    end = 0
    for member in members:
        header = _header(member, rules)
        end += len(header)
        headers.append(header)
        offsets.append(end)
        if not member.is_dir:
            size = member.stamp.size
            end += size + padding_bytes(size)
    return EntryLayout(entry, tuple(members), tuple(headers), tuple(offsets), end)


def bundle_bytes(layouts: Sequence[EntryLayout]) -> int:
    """Return the size of a bundle of these entries."""
    return sum(layout.length for layout in layouts) + len(END_OF_ARCHIVE)


def _header(member: SourceMember, rules: PackRules) -> bytes:
    stamp = member.stamp
    if member.is_dir:
        # A directory's time says when a name in it changed, locks included; that is nothing a
        # reader of the cache looks at, and would make equal trees differ.
        mode = safe_mode(stamp.mode, is_dir=True)
        return encode_member(member.path, is_dir=True, size=0, mode=mode, mtime_ns=0)
    return encode_member(
        member.path,
        is_dir=False,
        size=stamp.size,
        mode=safe_mode(stamp.mode, is_dir=False),
        mtime_ns=stamp.mtime_ns if rules.keep_mtimes else 0,
    )
