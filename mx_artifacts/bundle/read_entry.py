"""Read one entry of a cache that may be alive into memory: as a whole, unchanged, fit, or not."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mx_artifacts.bulk.status import Stamp
from mx_artifacts.bundle.entry import COMMIT_SECONDS, EntryFile, EntryView
from mx_artifacts.bundle.layout import EntryLayout
from mx_artifacts.bundle.rules import PackRules
from mx_artifacts.bundle.tree import SourceMember
from mx_artifacts.core.chunks import MIB
from mx_artifacts.core.digest import crc32c

_BLOCK_BYTES = 16 * MIB
"""Read at once: so much of a large file is in memory, in each thread."""
_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class EntryChangedError(Exception):
    """An entry is not what it was when it was listed; `wait_seconds` if it is known to settle."""

    def __init__(self, reason: str, wait_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.wait_seconds = wait_seconds


class EntryUnfitError(Exception):
    """An entry cannot be shipped, now or later: unreadable, or damaged."""


@dataclass(frozen=True, slots=True)
class EntryReader:
    """Reads entries below `root`. Any thread; `now` tells the time [s since the epoch].

    `min_age_seconds`: how long a file must have been left alone before it was listed.
    """

    root: str
    rules: PackRules
    min_age_seconds: float
    now: Callable[[], float]

    def read(
        self,
        layout: EntryLayout,
        space: memoryview,
        listed_at: float,
        written: Callable[[int, int], object],
    ) -> tuple[int, ...]:
        """Read an entry into `space`, zeros of its length; return each member's CRC32C.

        `written` hears of each part of `space` (offset, length) that was filled with a part of a
        large file, so that it need not be in memory as a whole.

        Raises:
            EntryChangedError, EntryUnfitError: `space` may hold anything now.
        """
        self.check_age(layout.members, listed_at)
        checksums: list[int] = []
        files: dict[str, EntryFile] = {}
        for member, header, offset in zip(
            layout.members, layout.headers, layout.offsets, strict=True
        ):
            space[offset - len(header) : offset] = header
            checksum = 0
            if not member.is_dir:
                size = member.stamp.size
                content = space[offset : offset + size]
                checksum = self._read_file(member, content, offset, written)
                files[member.path] = EntryFile(size, member.stamp.mtime_ns, offset)
            checksums.append(checksum)
        if files:
            self._judge(layout, files, space)
        return tuple(checksums)

    def check_age(self, members: Sequence[SourceMember], listed_at: float) -> None:
        """Refuse an entry that changed just before it was listed.

        Its directories count, as they tell of files that were removed: of a cache that is being
        wiped what is left may look whole. Stamps from the future come from a file server whose
        clock is ahead, and tell nothing.

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

    def _judge(
        self, layout: EntryLayout, files: Mapping[str, EntryFile], space: memoryview
    ) -> None:
        """Refuse an entry that changed while it was read, or that its kind finds fault with."""

        def content(path: str, count: int, offset: int) -> bytes:
            return bytes(space[offset : offset + count])

        age_seconds = self._age_seconds(layout.members)
        fault = self.rules.fault_of(
            EntryView(layout.entry, files, content=content, root=self.root, age_seconds=age_seconds)
        )
        # Last, so that nothing can have been written under a lock that was found free.
        for is_dir in (False, True):  # a file tells more than the directory that it is in
            for member in layout.members:
                if member.is_dir == is_dir:
                    self._check_stamp(member)
        if fault is not None and age_seconds < COMMIT_SECONDS:
            raise EntryChangedError(fault, wait_seconds=COMMIT_SECONDS - age_seconds)
        if fault is not None:
            raise EntryUnfitError(fault)

    def _age_seconds(self, members: Sequence[SourceMember]) -> float:
        changed_at = max(m.stamp.ctime_ns for m in members if not m.is_dir) / 1e9
        age_seconds = self.now() - changed_at
        # From the future: a file server's clock is ahead, and tells nothing.
        return age_seconds if age_seconds > -self.min_age_seconds else math.inf

    def _read_file(
        self,
        member: SourceMember,
        content: memoryview,
        offset: int,
        written: Callable[[int, int], object],
    ) -> int:
        """Fill `content`, which begins at `offset`, and return its CRC32C."""
        position = checksum = 0
        try:
            descriptor = os.open(f"{self.root}/{member.source}", _OPEN_FLAGS)
        except OSError as error:
            raise _read_failure(member, error) from None
        try:
            while position < len(content):
                block = content[position : position + _BLOCK_BYTES]
                count = os.readv(descriptor, [block])
                if not count:
                    raise EntryChangedError(f"{member.path} shrank while packed")
                checksum = crc32c(block[:count], checksum)
                if count == _BLOCK_BYTES:
                    written(offset + position, count)
                position += count
            return checksum
        except OSError as error:
            raise _read_failure(member, error) from None
        finally:
            os.close(descriptor)

    def _check_stamp(self, member: SourceMember) -> None:
        """Check that a member is still what it was when it was listed.

        That tells of the file that was read too: one that stood there only meanwhile was moved
        there and away again, or this one was, and a move changes a file's change time.
        """
        try:
            status = os.lstat(f"{self.root}/{member.source}")
        except OSError as error:
            raise _read_failure(member, error) from None
        if member.stamp != Stamp.of(status):
            raise EntryChangedError(f"{member.path} changed while packed")


def _read_failure(member: SourceMember, error: OSError) -> Exception:
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE):
        return EntryChangedError(f"{member.path} vanished while packed")
    if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):  # it was no link, pipe, directory
        return EntryChangedError(f"{member.path} changed while packed")
    return EntryUnfitError(f"{member.path} cannot be read ({error.strerror})")
