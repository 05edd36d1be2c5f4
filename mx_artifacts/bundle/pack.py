"""Pack a cache root into a bundle: deterministic, read once, and never half of an entry.

The cache may be alive. Where everything will lie is known from the listing, so entries are read
to their places by several threads. Each is read as a whole and then looked at again; if anything
about it changed meanwhile, or its kind says that its compiler has not committed it yet, it is
listed and read again for a while. Where one is left out, or has another size, the others close
ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from mx_artifacts.bundle.headers import END_OF_ARCHIVE, safe_mode
from mx_artifacts.bundle.layout import EntryLayout, bundle_bytes, lay_out, lay_out_entry
from mx_artifacts.bundle.memory import BundleMemory
from mx_artifacts.bundle.names import printable
from mx_artifacts.bundle.places import Place, close_ranks
from mx_artifacts.bundle.read_entry import EntryChangedError, EntryReader, EntryUnfitError
from mx_artifacts.bundle.rules import PackRules
from mx_artifacts.bundle.scan import BundleMember
from mx_artifacts.bundle.tree import Skipped, SourceTree, resolve_root, scan_entry, scan_tree
from mx_artifacts.clock import SYSTEM_CLOCK, Clock
from mx_artifacts.errors import BundleError, NothingToPublishError, SourceChangedError
from mx_artifacts.threads import for_each

M = TypeVar("M", bound=BundleMemory)

_PAUSES_SECONDS = (0.05, 0.1, 0.2)
"""Waits before the second and later attempts at entries that change."""
_PATIENCE_SECONDS = 2.0
"""Sum of all waits in one pack; an engine that compiles all the time must not hold it up."""
MIN_AGE_SECONDS = 0.5
"""How old a file must be. Above the tick of the kernel's clock (up to 10 ms), within which a file
changes without a new stamp; and long enough for a writer that a busy node stopped between two
writes, for half of an entry that nobody touches looks like a whole one."""


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


@dataclass(frozen=True)
class PackedTree(Generic[M]):
    """A bundle: all of `memory`, which whoever holds this closes."""

    memory: M
    members: tuple[PackedMember, ...]
    report: PackReport


def pack_tree(
    root: Path,
    rules: PackRules,
    allocate: Callable[[int], M],
    *,
    optional: bool = False,
    clock: Clock = SYSTEM_CLOCK,
) -> PackedTree[M]:
    """Pack what `rules` keep of `root` into one bundle; equal trees give equal bytes.

    An `optional` root that is missing or holds no files gives a bundle without members. Blocks
    for at most two seconds to let changing entries settle. Entries that `rules.fault_of` finds
    fault with are left out and reported.

    Raises:
        NothingToPublishError: the root is absent, unreadable or holds no files.
        SourceChangedError: there is nothing to publish because all of it kept changing.
        MxArtifactsError: whatever `allocate` raises.
    """
    listed_at = clock.now()
    absent = optional and not root.exists()
    tree = SourceTree((), ()) if absent else scan_tree(root, rules)
    resolved = "" if absent else resolve_root(root)
    reader = EntryReader(resolved, rules, MIN_AGE_SECONDS, clock.now)
    packer = _Packer(reader, clock, tree.skipped)
    layouts = lay_out(tree, rules)
    memory = allocate(bundle_bytes(layouts))
    try:
        packer.read_all(layouts, memory, listed_at)
        packer.read_changed()
        if not packer.has_files and not optional:
            raise _nothing_to_publish(root, packer)
        return packer.finish(memory, allocate)
    except BaseException:
        memory.close()
        raise


class _Packer:
    """Reads entries; those that are left out are in `skipped`."""

    def __init__(self, reader: EntryReader, clock: Clock, skipped: Iterable[Skipped]) -> None:
        self.skipped = list(skipped)
        self.never_settled = False
        self._reader = reader
        self._clock = clock
        self._patience_seconds = _PATIENCE_SECONDS
        self._order: dict[str, int] = {}
        self._read: dict[str, Place] = {}
        self._changed: dict[str, EntryChangedError] = {}

    @property
    def has_files(self) -> bool:
        return any(
            not member.is_dir for place in self._read.values() for member in place.layout.members
        )

    def read_all(
        self, layouts: Sequence[EntryLayout], memory: BundleMemory, listed_at: float
    ) -> None:
        """Read every entry to where it lies if all stay as they were listed."""
        places = []
        start = 0
        for layout in layouts:
            places.append(Place(layout, start, memory.view[start : start + layout.length]))
            start += layout.length
        self._order = {layout.entry: number for number, layout in enumerate(layouts)}

        def read(place: Place) -> None:
            self._try(place, listed_at)
            assert place.start is not None
            memory.written(place.start, place.layout.length)

        for_each(places, read, "mx-pack")

    def read_changed(self) -> None:
        """Give the entries that changed some time, and list and read them again."""
        for pause_seconds in _PAUSES_SECONDS:
            if not self._changed:
                return
            changed, self._changed = self._changed, {}
            self._pause(
                max(
                    pause_seconds if change.wait_seconds is None else change.wait_seconds
                    for change in changed.values()
                )
            )
            listed_at = self._clock.now()
            for entry in changed:
                self._read_again(entry, listed_at)
        for entry, change in self._changed.items():
            self._never_settled(entry, str(change))

    def _read_again(self, entry: str, listed_at: float) -> None:
        rules = self._reader.rules
        again = scan_entry(self._reader.root, entry, rules)
        if not again.members:
            reason = again.skipped[0].reason if again.skipped else "vanished while packed"
            self._never_settled(entry, reason)
            return
        layout = lay_out_entry(entry, again.members, rules)
        self._try(Place(layout, None, memoryview(bytearray(layout.length))), listed_at)

    def _try(self, place: Place, listed_at: float) -> None:
        entry = place.layout.entry
        try:
            place.checksums = self._reader.read(place.layout, place.space, listed_at)
        except EntryChangedError as change:
            self._changed[entry] = change
        except EntryUnfitError as fault:
            self._leave_out(entry, str(fault))
        else:
            self._read[entry] = place

    def _never_settled(self, entry: str, reason: str) -> None:
        self.never_settled = True
        self._leave_out(entry, reason)

    def _leave_out(self, entry: str, reason: str) -> None:
        self.skipped.append(Skipped(printable(entry), reason))

    def _pause(self, seconds: float) -> None:
        seconds = min(seconds, self._patience_seconds)
        self._patience_seconds -= seconds
        if seconds > 0:
            self._clock.sleep(seconds)

    def finish(self, memory: M, allocate: Callable[[int], M]) -> PackedTree[M]:
        """Bring what was read into one piece, in `memory` or where that is too small in another."""
        places = sorted(self._read.values(), key=lambda place: self._order[place.layout.entry])
        length = bundle_bytes([place.layout for place in places])
        final = memory if length <= len(memory.view) else allocate(length)
        try:
            close_ranks(places, final.view, in_target=final is memory)
            final.view[length - len(END_OF_ARCHIVE) : length] = END_OF_ARCHIVE
            final.written(0, length)
            final.cut(length)
            members = tuple(_members(places, self._reader.rules))
        except BaseException:
            final.close()
            raise
        if final is not memory:
            memory.close()
        return PackedTree(final, members, self._report(members, length))

    def _report(self, members: Sequence[PackedMember], length: int) -> PackReport:
        sizes = [each.member.size for each in members if not each.member.is_dir]
        return PackReport(
            len(sizes),
            sum(sizes),
            length,
            tuple(sorted(self.skipped, key=lambda skip: skip.path)),
            tuple(each.member.path for each in members),
        )


def _members(places: Iterable[Place], rules: PackRules) -> Iterator[PackedMember]:
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


def _nothing_to_publish(root: Path, packer: _Packer) -> BundleError:
    skipped = ""
    if packer.skipped:
        last = packer.skipped[-1]  # what was excluded by its name comes first
        skipped = f" that are fit for it ({len(packer.skipped)} left out; "
        skipped += f"{last.path}: {last.reason})"
    message = f"cache root {root} holds no files{skipped}: nothing to publish"
    if packer.never_settled:
        return SourceChangedError(message)
    return NothingToPublishError(message)
