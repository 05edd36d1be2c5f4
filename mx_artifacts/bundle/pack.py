"""Pack a cache root into a bundle: deterministic, and never half of an entry.

The cache may be alive. An entry is read as a whole and then looked at again; if anything about
it changed meanwhile, the bundle is cut back to where the entry began and it is tried again. So it
is for a while when its kind says that its compiler has not committed it yet.
"""

from __future__ import annotations

import errno
import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from mx_artifacts.bundle.entry import COMMIT_SECONDS, EntryFile, EntryView, bundle_content
from mx_artifacts.bundle.headers import END_OF_ARCHIVE, encode_member, padding_bytes, safe_mode
from mx_artifacts.bundle.names import printable
from mx_artifacts.bundle.rules import PackRules
from mx_artifacts.bundle.tree import (
    Skipped,
    SourceMember,
    SourceTree,
    Stamp,
    resolve_root,
    scan_entry,
    scan_tree,
)
from mx_artifacts.clock import SYSTEM_CLOCK, Clock
from mx_artifacts.errors import BundleError, NoSpaceError, NothingToPublishError, SourceChangedError

_BLOCK_BYTES = 1024 * 1024
_PAUSES_SECONDS = (0.05, 0.1, 0.2)
"""Waits before the second and later attempts at an entry that changes."""
_PATIENCE_SECONDS = 2.0
"""Sum of all waits in one pack; an engine that compiles all the time must not hold it up."""
MIN_AGE_SECONDS = 0.5
"""How old a file must be. Above the tick of the kernel's clock (up to 10 ms), within which a file
changes without a new stamp; and long enough for a writer that a busy node stopped between two
writes, for half of an entry that nobody touches looks like a whole one."""
_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


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


def pack_tree(
    root: Path,
    out: Path,
    rules: PackRules,
    *,
    optional: bool = False,
    clock: Clock = SYSTEM_CLOCK,
) -> PackReport:
    """Pack what `rules` keep of `root` into the bundle `out`; equal trees give equal bytes.

    `out` appears by rename when it is complete; its directory must exist, be outside `root` and
    is the caller's. An `optional` root that is missing or holds no files gives a bundle without
    members. Blocks for at most two seconds to let changing entries settle. Entries that
    `rules.fault_of` finds fault with are left out and reported.

    Raises:
        NothingToPublishError: the root is absent, unreadable or holds no files.
        BundleError: `out` cannot be written.
        SourceChangedError: there is nothing to publish because all of it kept changing.
        NoSpaceError: the file system of `out` is full.
    """
    started_at = clock.now()
    absent = optional and not root.exists()
    tree = SourceTree((), ()) if absent else scan_tree(root, rules)
    with _bundle_file(out) as file:
        packer = _Packer("" if absent else resolve_root(root), rules, file, clock)
        packer.pack(tree, started_at)
        if not packer.file_count and not optional:
            raise _nothing_to_publish(root, packer)
        file.write(END_OF_ARCHIVE)
        bundle_bytes = file.tell()
    return PackReport(
        packer.file_count,
        packer.content_bytes,
        bundle_bytes,
        tuple(sorted(packer.skipped, key=lambda skip: skip.path)),
        tuple(packer.paths),
    )


class _EntryChanged(Exception):
    """An entry is not what it was when it was listed; `wait_seconds` if it is known to settle."""

    def __init__(self, reason: str, wait_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.wait_seconds = wait_seconds


class _EntryUnfit(Exception):
    """An entry cannot be shipped, now or later: unreadable, or damaged."""


class _Packer:
    def __init__(self, root: str, rules: PackRules, file: BinaryIO, clock: Clock) -> None:
        self.file_count = 0
        self.content_bytes = 0
        self.skipped: list[Skipped] = []
        self.paths: list[str] = []
        self.changed_count = 0  # entries left out because they kept changing
        self._root = root
        self._rules = rules
        self._file = file
        self._clock = clock
        self._patience_seconds = _PATIENCE_SECONDS
        self._buffer = memoryview(bytearray(_BLOCK_BYTES))

    def pack(self, tree: SourceTree, listed_at: float) -> None:
        self.skipped += tree.skipped
        entries: dict[str, list[SourceMember]] = {}
        for member in tree.members:
            entries.setdefault(self._rules.entry_of(member.path), []).append(member)
        for entry, members in entries.items():
            self._pack_entry(entry, members, listed_at)

    def _pack_entry(self, entry: str, members: Sequence[SourceMember], listed_at: float) -> None:
        """Write an entry, or leave it out whole and say so."""
        start = self._file.tell()
        why = ""
        for pause_seconds in (*_PAUSES_SECONDS, None):
            try:
                self._check_age(members, listed_at)
                self._write_entry(entry, members)
            except _EntryUnfit as fault:
                self._leave_out(entry, start, str(fault))
                return
            except _EntryChanged as change:
                why = str(change)
                self._cut_back(start)
                wait_seconds = change.wait_seconds
            else:
                self._count(members)
                return
            if pause_seconds is not None:
                self._pause(pause_seconds if wait_seconds is None else wait_seconds)
                listed_at = self._clock.now()
                again = scan_entry(self._root, entry, self._rules)
                members = again.members
                if not members:
                    why = again.skipped[0].reason if again.skipped else "vanished while packed"
                    break
        self.changed_count += 1
        self._leave_out(entry, start, why)

    def _count(self, members: Sequence[SourceMember]) -> None:
        for member in members:
            self.paths.append(member.path)
            if not member.is_dir:
                self.file_count += 1
                self.content_bytes += member.stamp.size

    def _check_age(self, members: Sequence[SourceMember], listed_at: float) -> None:
        """Refuse an entry that changed just before it was listed.

        Its directories count, as they tell of files that were removed: of a cache that is being
        wiped what is left may look whole. Stamps from the future come from a file server whose
        clock is ahead, and tell nothing.
        """
        if all(member.is_dir for member in members):
            return
        now = self._clock.now()
        latest_ns = int((now + MIN_AGE_SECONDS) * 1e9)
        known = (member for member in members if member.stamp.ctime_ns <= latest_ns)
        newest = max(known, key=lambda member: member.stamp.ctime_ns, default=None)
        if newest is not None:
            old_at = newest.stamp.ctime_ns / 1e9 + MIN_AGE_SECONDS
            if listed_at < old_at:
                reason = f"{newest.path} was being written while packed"
                raise _EntryChanged(reason, wait_seconds=max(0.0, old_at - now))

    def _write_entry(self, entry: str, members: Sequence[SourceMember]) -> None:
        files: dict[str, EntryFile] = {}
        for member in members:
            if member.is_dir:
                mode = safe_mode(member.stamp.mode, is_dir=True)
                # A directory's time says when a name in it changed, locks included; that is
                # nothing a reader of the cache looks at, and would make equal trees differ.
                header = encode_member(member.path, is_dir=True, size=0, mode=mode, mtime_ns=0)
                self._file.write(header)
            else:
                files[member.path] = self._write_file(member)
        if files:
            self._judge(entry, members, files)

    def _judge(
        self, entry: str, members: Sequence[SourceMember], files: Mapping[str, EntryFile]
    ) -> None:
        """Refuse an entry that changed while it was read, or that its kind finds fault with."""
        age_seconds = self._age_seconds(members)
        content = bundle_content(self._file)
        fault = self._rules.fault_of(
            EntryView(entry, files, content=content, root=self._root, age_seconds=age_seconds)
        )
        # Last, so that nothing can have been written under a lock that was found free.
        for member in members:
            self._check_stamp(member, f"{self._root}/{member.source}")
        if fault is not None and age_seconds < COMMIT_SECONDS:
            raise _EntryChanged(fault, wait_seconds=COMMIT_SECONDS - age_seconds)
        if fault is not None:
            raise _EntryUnfit(fault)

    def _age_seconds(self, members: Sequence[SourceMember]) -> float:
        changed_at = max(m.stamp.ctime_ns for m in members if not m.is_dir) / 1e9
        age_seconds = self._clock.now() - changed_at
        # From the future: a file server's clock is ahead, and tells nothing.
        return age_seconds if age_seconds > -MIN_AGE_SECONDS else math.inf

    def _write_file(self, member: SourceMember) -> EntryFile:
        try:
            descriptor = os.open(f"{self._root}/{member.source}", _OPEN_FLAGS)
        except OSError as error:
            raise _read_failure(member, error) from None
        try:
            self._check_stamp(member, descriptor)
            stamp = member.stamp
            header = encode_member(
                member.path,
                is_dir=False,
                size=stamp.size,
                mode=safe_mode(stamp.mode, is_dir=False),
                mtime_ns=stamp.mtime_ns if self._rules.keep_mtimes else 0,
            )
            self._file.write(header)
            offset = self._file.tell()
            self._copy(member, descriptor)
            self._file.write(bytes(padding_bytes(stamp.size)))
        finally:
            os.close(descriptor)
        return EntryFile(stamp.size, stamp.mtime_ns, offset)

    def _copy(self, member: SourceMember, descriptor: int) -> None:
        left = member.stamp.size
        while left:
            try:
                count = os.readv(descriptor, [self._buffer[: min(left, _BLOCK_BYTES)]])
            except OSError as error:
                raise _read_failure(member, error) from None
            if not count:
                raise _EntryChanged(f"{member.path} shrank while packed")
            self._file.write(self._buffer[:count])
            left -= count

    def _check_stamp(self, member: SourceMember, where: str | int) -> None:
        """Compare a member's stamp to that of the path or open file `where`."""
        try:
            status = os.stat(where) if isinstance(where, int) else os.lstat(where)
        except OSError as error:
            raise _read_failure(member, error) from None
        if Stamp.of(status) != member.stamp:
            raise _EntryChanged(f"{member.path} changed while packed")

    def _pause(self, seconds: float) -> None:
        seconds = min(seconds, self._patience_seconds)
        self._patience_seconds -= seconds
        if seconds > 0:
            self._clock.sleep(seconds)

    def _leave_out(self, entry: str, start: int, reason: str) -> None:
        self._cut_back(start)
        self.skipped.append(Skipped(printable(entry), reason))

    def _cut_back(self, start: int) -> None:
        self._file.seek(start)
        self._file.truncate()


def _read_failure(member: SourceMember, error: OSError) -> Exception:
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE):
        return _EntryChanged(f"{member.path} vanished while packed")
    if error.errno == errno.ELOOP:  # O_NOFOLLOW: a link stands there now
        return _EntryChanged(f"{member.path} changed while packed")
    return _EntryUnfit(f"{member.path} cannot be read ({error.strerror})")


def _nothing_to_publish(root: Path, packer: _Packer) -> BundleError:
    skipped = ""
    if packer.skipped:
        last = packer.skipped[-1]  # what was excluded by its name comes first
        skipped = f" that are fit for it ({len(packer.skipped)} left out; "
        skipped += f"{last.path}: {last.reason})"
    message = f"cache root {root} holds no files{skipped}: nothing to publish"
    if packer.changed_count:
        return SourceChangedError(message)
    return NothingToPublishError(message)


@contextmanager
def _bundle_file(out: Path) -> Iterator[BinaryIO]:
    """Give a file to write that becomes `out` at the end, or leaves nothing on any failure."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{out.name[:200]}.", dir=out.parent)
        try:
            with os.fdopen(descriptor, "w+b", buffering=_BLOCK_BYTES) as file:
                yield file
            os.replace(name, out)
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoSpaceError(
                f"no space left for bundle {out}",
                hint=f"free space on the file system of {out.parent}, or set --bundle-root",
            ) from error
        raise BundleError(f"bundle {out} cannot be written ({error.strerror})") from error
