"""Reads entries of a live cache: each as a whole, unchanged and committed, or not at all."""

from __future__ import annotations

import errno
import math
import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from mx_artifacts.bulk.read import ShortFileError, read_files
from mx_artifacts.bulk.status import stamp_columns
from mx_artifacts.bundle.entry import COMMIT_SECONDS, EntryFile, EntryView
from mx_artifacts.bundle.placement import EntryPlacement, PartFilled
from mx_artifacts.bundle.rules import PackRules
from mx_artifacts.bundle.tree import SourceMember
from mx_artifacts.core.chunks import MIB
from mx_artifacts.core.digest import crc32c
from mx_artifacts.filesystem.beneath import Directory

_READ_BYTES = 16 * MIB
"""Read at once: so much of a large file is in memory, in each thread."""
_OPEN_FLAGS = os.O_RDONLY | os.O_NONBLOCK


class EntryChangedError(Exception):
    """An entry is not what it was when it was listed; `wait_seconds` if it is known to settle."""

    def __init__(self, reason: str, wait_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.wait_seconds = wait_seconds


class EntryUnfitError(Exception):
    """An entry cannot be shipped, now or later: unreadable, or damaged."""


EntryError = EntryChangedError | EntryUnfitError


@dataclass(frozen=True, slots=True)
class Reading:
    """An entry's place, which begins at `start` in the space that several are read to."""

    place: EntryPlacement
    start: int

    @property
    def entry(self) -> str:
        """Its name."""
        return self.place.layout.entry

    @property
    def members(self) -> tuple[SourceMember, ...]:
        """Its files and directories."""
        return self.place.layout.members

    def contents(self) -> Iterator[tuple[str, int, int]]:
        """Yield what is read for each file, where in the space it begins and how long it is."""
        layout, start = self.place.layout, self.start
        for member, offset in zip(layout.members, layout.offsets, strict=True):
            _, source, stamp, is_dir = member
            if not is_dir:
                yield source, start + offset, stamp.size


@dataclass(frozen=True, slots=True)
class EntryReader:
    """Reads entries below `root`. Any thread; `now` returns the time [s since the epoch].

    `min_age_seconds`: minimum time between the last change of a file and its listing [s].
    """

    root: Directory
    rules: PackRules
    min_age_seconds: float
    now: Callable[[], float]

    def read(
        self, readings: Sequence[Reading], space: memoryview, listed_at: float, written: PartFilled
    ) -> dict[str, EntryError]:
        """Read entries to their places, parts of `space` that are zeros; set their checksums.

        Returns why those are left out that are not now what they were when they were listed, or not
        fit, by name. Their places may hold anything.
        """
        failed: dict[str, EntryError] = {}
        settled = []
        for reading in readings:
            try:
                self.check_age(reading.members, listed_at)
            except EntryChangedError as change:
                failed[reading.entry] = change
            else:
                settled.append(reading)
        filled = self._fill(settled, space, written, failed)
        judged = [(reading, *self._judge(reading)) for reading in filled if _has_files(reading)]
        # Last, so that nothing can have been written under a lock that was found free.
        self._check_stamps([reading for reading, _, _ in judged], failed)
        self._check_places([reading for reading in filled if not _has_files(reading)], failed)
        for reading, fault, age_seconds in judged:
            if fault is None or reading.entry in failed:
                continue
            young = age_seconds < COMMIT_SECONDS
            failed[reading.entry] = (
                EntryChangedError(fault, wait_seconds=COMMIT_SECONDS - age_seconds)
                if young
                else EntryUnfitError(fault)
            )
        return failed

    def check_age(self, members: Sequence[SourceMember], listed_at: float) -> None:
        """Refuse an entry that changed just before it was listed.

        Its directories count, too, because their times show that files were removed: while a cache
        is being wiped, the remaining files may look complete. Times in the future come from a file
        server whose clock is ahead; they show nothing.

        Raises:
            EntryChangedError
        """
        now = self.now()
        settled_ns = int((min(now, listed_at) - self.min_age_seconds) * 1e9)
        if max(member.stamp.ctime_ns for member in members) <= settled_ns:
            return  # nearly always
        if all(member.is_dir for member in members):
            return
        latest_ns = int((now + self.min_age_seconds) * 1e9)
        known = (member for member in members if member.stamp.ctime_ns <= latest_ns)
        newest = max(known, key=lambda member: member.stamp.ctime_ns, default=None)
        if newest is not None:
            old_at = newest.stamp.ctime_ns / 1e9 + self.min_age_seconds
            if listed_at < old_at:
                reason = f"{newest.path} was being written while packed"
                raise EntryChangedError(reason, wait_seconds=max(0.0, old_at - now))

    def _judge(self, reading: Reading) -> tuple[str | None, float]:
        """Return what its kind has against an entry, and for how long that did not change [s]."""
        space = reading.place.space
        files = {}
        for member, offset in zip(reading.members, reading.place.layout.offsets, strict=True):
            path, _, stamp, is_dir = member
            if not is_dir:
                files[path] = EntryFile(stamp.size, stamp.mtime_ns, offset)

        def content(path: str, count: int, offset: int) -> bytes:
            return bytes(space[offset : offset + count])

        age_seconds = self._age_seconds(reading.members)
        view = EntryView(
            reading.entry, files, content=content, root=self.root, age_seconds=age_seconds
        )
        return self.rules.fault_of(view), age_seconds

    def _age_seconds(self, members: Sequence[SourceMember]) -> float:
        changed_at = max(m.stamp.ctime_ns for m in members if not m.is_dir) / 1e9
        age_seconds = self.now() - changed_at
        # From the future: a file server's clock is ahead, and tells nothing.
        return age_seconds if age_seconds > -self.min_age_seconds else math.inf

    def _fill(
        self,
        readings: Sequence[Reading],
        space: memoryview,
        written: PartFilled,
        failed: dict[str, EntryError],
    ) -> Sequence[Reading]:
        """Read entries and set their checksums; return those that could be read."""
        try:
            self._fill_all(readings, space, written)
            return readings
        except (OSError, ShortFileError) as error:
            if len(readings) == 1:
                failed[readings[0].entry] = _read_failure(readings[0], error)
                return ()
        each = [self._fill([reading], space, written, failed) for reading in readings]
        return [reading for filled in each for reading in filled]

    def _fill_all(
        self, readings: Sequence[Reading], space: memoryview, written: PartFilled
    ) -> None:
        """As `_fill`; raises what `read_files` does for the first file that cannot be read."""
        contents = [content for reading in readings for content in reading.contents()]
        small = [content for content in contents if content[2] <= _READ_BYTES]
        large = [content for content in contents if content[2] > _READ_BYTES]
        checksums: dict[int, int] = {}  # by where the content begins
        if small:
            paths, offsets, lengths = zip(*small, strict=True)
            columns = array("q", offsets), array("q", lengths)
            found = read_files(self.root.descriptor, paths, space, *columns)
            checksums.update(zip(offsets, found, strict=True))
        for source, at, length in large:
            part = space[at : at + length]
            checksums[at] = _read_large(self.root, source, part, at, written)
        for reading in readings:
            layout, place = reading.place.layout, reading.place
            for header, offset in zip(layout.headers, layout.offsets, strict=True):
                place.space[offset - len(header) : offset] = header
            place.checksums = [checksums.get(reading.start + at, 0) for at in layout.offsets]

    def _check_stamps(self, readings: Sequence[Reading], failed: dict[str, EntryError]) -> None:
        """Check that no member has changed since it was listed.

        This also covers the files that were read: if another file was in that place for a moment,
        one of the two was moved, and a move changes the change time of a file.
        """
        members = [member for reading in readings for member in reading.members]
        try:
            columns = stamp_columns(self.root.descriptor, [member.source for member in members])
            stamps = list(zip(*columns, strict=True))
        except OSError:  # the root is gone, and looking at what became of each member tells so
            stamps = []
        if stamps == [member.stamp for member in members]:
            return  # nearly always
        here = set(zip(members, stamps, strict=True)) if stamps else set()
        for reading in readings:
            changed = [m for m in reading.members if (m, m.stamp) not in here]
            if changed:  # a file tells more than the directory that it is in
                failed[reading.entry] = self._change(reading, min(changed, key=_is_dir))

    def _check_places(self, readings: Sequence[Reading], failed: dict[str, EntryError]) -> None:
        """Check that entries without files are the same directories that were listed.

        A directory that was moved away before it was listed looked empty, and another one may be in
        its place now. The times of directories show nothing, because files that are left out, such
        as locks, are created and removed in them.
        """
        members = [member for reading in readings for member in reading.members]
        now: dict[SourceMember, tuple[int, int]] = {}
        with suppress(OSError):  # the root is gone, and they with it
            found = stamp_columns(self.root.descriptor, [member.source for member in members])
            now.update(zip(members, zip(found.devices, found.inodes, strict=True), strict=True))
        for reading in readings:
            moved = [m for m in reading.members if now.get(m) != (m.stamp.device, m.stamp.inode)]
            if moved:
                failed[reading.entry] = self._change(reading, moved[0])

    def _change(self, reading: Reading, member: SourceMember) -> EntryError:
        """Say what became of a member that was found changed."""
        try:
            self.root.status_of(member.source)
        except OSError as error:
            error.filename = member.source
            return _read_failure(reading, error)
        return EntryChangedError(f"{member.path} changed while packed")


def _read_large(
    root: Directory,
    source: str,
    content: memoryview,
    offset: int,
    written: PartFilled,
) -> int:
    """Fill `content`, which begins at `offset`; return its CRC32C; raises as `read_files`."""
    position = checksum = 0
    descriptor = root.open(source, _OPEN_FLAGS)
    try:
        while position < len(content):
            block = content[position : position + _READ_BYTES]
            count = os.readv(descriptor, [block])
            if not count:
                raise ShortFileError(source)
            checksum = crc32c(block[:count], checksum)
            if count == _READ_BYTES:
                written(offset + position, count)
            position += count
        return checksum
    except OSError as error:
        error.filename = source
        raise
    finally:
        os.close(descriptor)


def _read_failure(reading: Reading, error: OSError | ShortFileError) -> EntryError:
    """Return what it means for an entry that the file which `error` names was not read."""
    source = error.path if isinstance(error, ShortFileError) else error.filename
    path = next((m.path for m in reading.members if m.source == source), reading.entry)
    if isinstance(error, ShortFileError):
        return EntryChangedError(f"{path} shrank while packed")
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE):
        return EntryChangedError(f"{path} vanished while packed")
    if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):  # it was no link, pipe, directory
        return EntryChangedError(f"{path} changed while packed")
    return EntryUnfitError(f"{path} cannot be read ({error.strerror})")


def _has_files(reading: Reading) -> bool:
    return not all(map(_is_dir, reading.members))


def _is_dir(member: SourceMember) -> bool:
    return member.is_dir
