"""Packs a cache root into a bundle: deterministic, read once, and with whole entries only.

An engine may change the cache at the same time. The listing determines where everything will be in
the bundle, so several threads read entries to their places. Each entry is read as a whole and then
its status is read again. If it changed, or if its kind says that the compiler has not committed it
yet, it is listed and read again for a while. If an entry is left out or has another size, the
others move so that there is no gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from mx_artifacts.bundle.headers import END_OF_ARCHIVE
from mx_artifacts.bundle.layout import EntryLayout, bundle_bytes, lay_out, lay_out_entry
from mx_artifacts.bundle.memory import BundleMemory
from mx_artifacts.bundle.names import printable
from mx_artifacts.bundle.packed import (
    PackedTree,
    packed_entries,
    packed_members,
    report_of,
)
from mx_artifacts.bundle.placement import (
    EntryPlacement,
    OverflowBuffers,
    PartFilled,
    batches,
    compact,
    copy,
    is_alike,
    start_of,
)
from mx_artifacts.bundle.read_entry import (
    EntryChangedError,
    EntryError,
    EntryReader,
    Reading,
)
from mx_artifacts.bundle.rules import PackRules
from mx_artifacts.bundle.tree import (
    EXCLUDED,
    SkippedPath,
    SourceTree,
    open_root,
    scan_directory,
    scan_entry,
)
from mx_artifacts.errors import BundleError, NothingToPublishError, SourceChangedError
from mx_artifacts.filesystem.beneath import Directory
from mx_artifacts.runtime.clock import SYSTEM_CLOCK, Clock
from mx_artifacts.runtime.gc_pause import gc_paused
from mx_artifacts.runtime.threads import for_each

M = TypeVar("M", bound=BundleMemory)

_PAUSES_SECONDS = (0.05, 0.1, 0.2)
"""Waits before the second and later attempts at entries that change."""
_PATIENCE_SECONDS = 2.0
"""Sum of all waits in one pack; an engine that compiles all the time must not hold it up."""
MIN_AGE_SECONDS = 0.5
"""Minimum age of a file. It is longer than the tick of the kernel's clock (up to 10 ms), within
which a file can change without a new time. It is also long enough for a writer that a busy node
stopped between two writes, because an incomplete entry that does not change looks complete."""


def pack_tree(
    root: Path,
    rules: PackRules,
    allocate: Callable[[int], M],
    *,
    optional: bool = False,
    previous: PackedTree[M] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> PackedTree[M]:
    """Pack what `rules` select from `root` into one bundle; equal trees give equal bytes.

    Entries that have not changed since `previous` was packed from this root (their times are the
    same, too) are copied from its memory, which must stay open. They are not read or judged again.

    An `optional` root that is missing or holds no files gives a bundle without members. Blocks
    for at most two seconds to let changing entries settle. Entries in which `rules.fault_of` finds
    a fault are left out and reported.

    Besides the bundle, it needs memory for copies of the entries that changed meanwhile and have
    another size now: at most 64 MiB of plain memory, and the rest from `allocate`, until this
    returns. If the bundle grew because of them, it needs memory for a copy of the whole bundle. Of
    a bundle that `allocate` keeps in a file, some 16 MiB for each thread are in memory at once.

    Raises:
        NothingToPublishError: the root is absent, unreadable or holds no files.
        SourceChangedError: there is nothing to publish because all of it kept changing.
        MxArtifactsError: `allocate` raised it.
    """
    if optional and not root.exists():
        with Directory(-1, Path()) as nowhere:
            return _pack(root, nowhere, rules, allocate, True, None, clock)
    with open_root(root) as directory:
        return _pack(root, directory, rules, allocate, optional, previous, clock)


def _pack(
    root: Path,
    directory: Directory,
    rules: PackRules,
    allocate: Callable[[int], M],
    optional: bool,
    previous: PackedTree[M] | None,
    clock: Clock,
) -> PackedTree[M]:
    """Pack `directory`, which `root` leads to; as `pack_tree`."""
    listed_at = clock.now()
    is_absent = directory.descriptor < 0
    with gc_paused():
        tree = SourceTree((), ()) if is_absent else scan_directory(directory, rules)
    reader = EntryReader(directory, rules, MIN_AGE_SECONDS, clock.now)
    former = None
    if previous is not None and (previous.root, previous.rules) == (str(directory.path), rules):
        former = previous
    spare = OverflowBuffers(allocate)
    packer = _Packer(reader, clock, tree.skipped, spare, former)
    with gc_paused():
        layouts = lay_out(tree, rules, packer.known_layouts)
    memory = allocate(bundle_bytes(layouts))
    try:
        packer.read_all(layouts, memory, listed_at)
        packer.read_changed(memory)
        if not packer.has_files and not optional:
            raise _nothing_to_publish(root, packer)
        return packer.finish(memory, allocate)
    except BaseException:
        memory.close()
        raise
    finally:
        spare.close()


class _Packer:
    """Reads entries; those that are left out are in `skipped`."""

    def __init__(
        self,
        reader: EntryReader,
        clock: Clock,
        skipped: Iterable[SkippedPath],
        spare: OverflowBuffers,
        former: PackedTree[Any] | None = None,
    ) -> None:
        self.skipped = list(skipped)
        self._listed = frozenset(self.skipped)
        self.never_settled = False
        self._reader = reader
        self._clock = clock
        self._spare = spare
        self._former = former
        self._patience_seconds = _PATIENCE_SECONDS
        self._order: dict[str, int] = {}
        self._read: dict[str, EntryPlacement] = {}
        self._changed: dict[str, EntryChangedError] = {}
        self._left: dict[str, EntryPlacement] = {}

    @property
    def known_layouts(self) -> Mapping[str, EntryLayout]:
        """Those of the entries that were packed before, by name."""
        entries = {} if self._former is None else self._former.entries
        return {name: entry.layout for name, entry in entries.items()}

    @property
    def has_files(self) -> bool:
        return any(
            not member.is_dir for place in self._read.values() for member in place.layout.members
        )

    def read_all(
        self, layouts: Sequence[EntryLayout], memory: BundleMemory, listed_at: float
    ) -> None:
        """Read every entry to its position, as if none of them changed after they were listed."""
        places = []
        start = 0
        for layout in layouts:
            places.append(EntryPlacement(layout, start, memory.view[start : start + layout.length]))
            start += layout.length
        self._order = {layout.entry: number for number, layout in enumerate(layouts)}

        def read(batch: Sequence[EntryPlacement]) -> None:
            start = start_of(batch[0])
            length = sum(place.layout.length for place in batch)
            readings = [Reading(place, start_of(place) - start) for place in batch]
            space = memory.view[start : start + length]
            self._try(readings, space, listed_at, lambda at, n: memory.written(start + at, n))
            memory.written(start, length)

        for_each(batches(places), read, "mx-pack")

    def read_changed(self, memory: BundleMemory) -> None:
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
                self._read_again(entry, listed_at, memory)
        for entry, change in self._changed.items():
            self._never_settled(entry, str(change))

    def _read_again(self, entry: str, listed_at: float, memory: BundleMemory) -> None:
        """Read an entry to where it lay, which is what it comes to nearly always, or elsewhere."""
        rules = self._reader.rules
        again = scan_entry(self._reader.root, entry, rules)
        if not again.members:
            reason = again.skipped[0].reason if again.skipped else "vanished while packed"
            self._never_settled(entry, reason)
            return
        lost = next((skip for skip in again.skipped if self._is_news(skip)), None)
        if lost is not None:  # what was there has yielded to a link, say: half of it is left
            where = "" if lost.path == entry else f"{lost.path}: "
            self._never_settled(entry, f"{where}{lost.reason}")
            return
        layout = lay_out_entry(entry, again.members, rules)
        place, written = self._place_again(layout, memory)
        self._try([Reading(place, 0)], place.space, listed_at, written)
        written(0, layout.length)

    def _is_news(self, skip: SkippedPath) -> bool:
        """Return whether something is left out now that was not when the root was listed."""
        return not skip.reason.startswith(EXCLUDED) and skip not in self._listed

    def _place_again(
        self, layout: EntryLayout, memory: BundleMemory
    ) -> tuple[EntryPlacement, PartFilled]:
        left = self._left.get(layout.entry)
        if left is None or not is_alike(layout, left.layout):
            return self._spare.place(layout)
        start = start_of(left)
        place = EntryPlacement(layout, start, left.space)
        return place, lambda at, length: memory.written(start + at, length)

    def _try(
        self, readings: Sequence[Reading], space: memoryview, listed_at: float, written: PartFilled
    ) -> None:
        failed: dict[str, EntryError] = {}
        anew = []
        for reading in readings:
            try:
                if not self._copy_former(reading.place, listed_at):
                    anew.append(reading)
            except EntryChangedError as change:
                failed[reading.entry] = change
        failed |= self._reader.read(anew, space, listed_at, written)
        for reading in readings:
            entry, error = reading.entry, failed.get(reading.entry)
            if error is None:
                self._read[entry] = reading.place
            elif isinstance(error, EntryChangedError):
                self._changed[entry] = error
                if reading.place.start is not None:
                    self._left[entry] = reading.place
            else:
                self._leave_out(entry, str(error))

    def _copy_former(self, place: EntryPlacement, listed_at: float) -> bool:
        """Copy an entry that is as it was from the former bundle; return whether it is one.

        It was read as a whole, under stamps that were too old to hide a later change. So what is
        copied is what it was then, even where it changes at this moment.
        """
        former = None if self._former is None else self._former.entries.get(place.layout.entry)
        if self._former is None or former is None or former.layout is not place.layout:
            return False
        self._reader.check_age(place.layout.members, listed_at)
        copy(self._former.memory, former.start, place.space)
        place.checksums = former.checksums
        return True

    def _never_settled(self, entry: str, reason: str) -> None:
        self.never_settled = True
        self._leave_out(entry, reason)

    def _leave_out(self, entry: str, reason: str) -> None:
        self.skipped.append(SkippedPath(printable(entry), reason))

    def _pause(self, seconds: float) -> None:
        seconds = min(seconds, self._patience_seconds)
        self._patience_seconds -= seconds
        if seconds > 0:
            self._clock.sleep(seconds)

    @gc_paused()
    def finish(self, memory: M, allocate: Callable[[int], M]) -> PackedTree[M]:
        """Bring what was read into one piece, in `memory` or where that is too small in another."""
        places = sorted(self._read.values(), key=lambda place: self._order[place.layout.entry])
        length = bundle_bytes([place.layout for place in places])
        final = memory if length <= len(memory.view) else allocate(length)
        try:
            sources: list[BundleMemory] = [memory, *self._spare.memories]
            compact(places, final, sources, in_target=final is memory)
            final.view[length - len(END_OF_ARCHIVE) : length] = END_OF_ARCHIVE
            final.written(0, length)
            final.cut(length)
            members = packed_members(places, self._reader.rules)
        except BaseException:
            final.close()
            raise
        if final is not memory:
            memory.close()
        reader = self._reader
        report = report_of(members.columns, length, self.skipped)
        place = str(reader.root.path)
        return PackedTree(final, members, report, place, reader.rules, packed_entries(places))


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
