"""Stages a root: writes a bundle's members beside it, adapts them, makes them durable, lists them.

A staged tree is in the root's workspace. It does not need the root's lock: the process that writes
it holds a flock on its directory, so that others do not touch it; the kernel frees it when the
process dies.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from threading import Semaphore
from typing import Any

from mx_artifacts.bulk.status import stamp_columns
from mx_artifacts.bundle.index import BundleMap
from mx_artifacts.bundle.spans import Part, Span
from mx_artifacts.core.digest import crc32c_hex
from mx_artifacts.core.foreign_text import shown
from mx_artifacts.errors import InstallVerificationError
from mx_artifacts.filesystem.files import existing_in
from mx_artifacts.filesystem.space import Need, os_errors_translated, require_space
from mx_artifacts.install.base import RootInstall
from mx_artifacts.install.receipts.receipt import InstalledEntry, InstalledFile
from mx_artifacts.install.staging.bundle_sink import BundleSink
from mx_artifacts.install.staging.resume import begin_writing
from mx_artifacts.install.staging.staged_files import describe, remove_emptied, sync_file
from mx_artifacts.install.staging.tree_writer import TreeWriter
from mx_artifacts.install.staging.unchanged import unchanged_entries
from mx_artifacts.install.state.boot import boot_id, lost_entries
from mx_artifacts.install.state.previous_installs import PreviousInstalls
from mx_artifacts.install.workspace.acquire import acquire_staging, remove_if_unused
from mx_artifacts.install.workspace.entries import ancestors, group_entries, leaves_of
from mx_artifacts.install.workspace.workspace import STAGING, TREE, StagingPlace
from mx_artifacts.kinds.base import FileContent
from mx_artifacts.node.mounts import lies_in_memory
from mx_artifacts.runtime.clock import SYSTEM_CLOCK
from mx_artifacts.runtime.threads import thread_count

_SYNC_THREADS = 16
"""A file system commits concurrent fsyncs together: 0.8 s instead of 2.3 s for 5,000 small files
on ext4. syncfs would be one call, but it also waits for all other unwritten data there (weights,
100 GB)."""


@dataclass(frozen=True)
class StagedTree:
    """A tree that is ready to be moved in; `entries` are in sorted order.

    `arrived` are the entries that the bundle had, before fix-ups dropped some. Those
    `for_comparison` are not to be moved in: they are in the root, and are not on the disk for
    certain. `repairs` has those that take the place of one at fault, and its fault. The
    `unchanged` are not staged: they were in the root as they would have come, when it was
    `looked_at` (by `time.monotonic`). `boot_id`: as in `RootReceipt`.
    """

    place: StagingPlace
    entries: tuple[InstalledEntry, ...]
    dropped: Mapping[str, str]
    unverified: Mapping[str, str] = field(default_factory=dict)
    arrived: frozenset[str] = frozenset()
    for_comparison: frozenset[str] = frozenset()
    repairs: Mapping[str, str] = field(default_factory=dict)
    unchanged: tuple[InstalledEntry, ...] = ()
    looked_at: float = -inf
    boot_id: str = ""

    @property
    def directory(self) -> Path:
        """Where it is."""
        return self.place.tree

    def inode_of(self, path: str) -> int:
        """Return the inode number of an entry, or of the tree. Raises OSError."""
        return self.place.held.status_of(f"{TREE}/{path}" if path else TREE).st_ino


class Staging:
    """One root's bundle on its way in. `write` from any thread; the rest from one. `close` it."""

    def __init__(
        self,
        install: RootInstall,
        bundle_bytes: int,
        bundle_map: BundleMap | None = None,
        earlier: PreviousInstalls | None = None,
    ) -> None:
        """Create a place for a bundle of `bundle_bytes` that will be installed into `install.root`.

        `earlier` says what was installed there before. With a map of the bundle, the files of an
        interrupted fetch are used, and parts are written by `write_span`, after `expect` has said
        which. Without a map, everything is written by `write`.

        Raises:
            UnusablePlaceError, UnsafePathError, InstallError: it is not possible to stage there.
            NoSpaceError: there is no room.
        """
        self.install = install
        with self._translated():
            self.workspace, self._place = acquire_staging(
                install.root, resume=bundle_map is not None
            )
            self.directory = self._place.tree
            try:
                if bundle_map is None:
                    # Files are rounded up to blocks, but the bundle has headers: near enough.
                    require_space([Need(self.directory, (bundle_bytes,))])
                self._access = self.workspace.access()
                self._writer = TreeWriter(self.directory, self._access)
            except BaseException:
                self._let_go()
                raise
        self._earlier = earlier
        # In memory a writer needs a core all the time, and further ones only fight for the cores;
        # on a disk they wait for it.
        self._writing: AbstractContextManager[Any] = nullcontext()
        self.in_memory = lies_in_memory(self.directory)
        if self.in_memory:
            self._writing = Semaphore(thread_count())
        self._map = bundle_map
        self._sink = BundleSink(bundle_bytes, self._writer)
        self._files: Mapping[str, InstalledFile] = {}
        self._directories: tuple[str, ...] = ()
        self._groups: dict[str, list[str]] | None = None  # of what is staged, once it is known
        self._unchanged: tuple[InstalledEntry, ...] = ()

    def write(self, offset: int, data: memoryview) -> None:
        """Take verified bytes of the bundle; `data` may be used again when this returns.

        Raises:
            UnsafePathError, BundleError: the bytes are no bundle of regular files.
            NoSpaceError, InstallError: it cannot be written.
            WorkStopped: another part failed, or `stop` was called.
        """
        with self._translated():
            self._sink.write(offset, data)

    def expect(self) -> list[Part]:
        """Return the parts of the bundle that must come, in their order.

        Not those of entries that are in the root as a receipt says, nor what an interrupted
        fetch has left staged.

        Raises:
            UnsafePathError, InstallError, NoSpaceError
        """
        assert self._map is not None, "without a map everything must come"
        members = self._map.members
        files = {each.path: each for each in members if not each.is_dir}
        directories = tuple(each.path for each in members if each.is_dir)
        with self._translated():
            groups = self._entries(files, directories)
            self._unchanged = unchanged_entries(
                groups,
                files,
                self._earlier.unchanged_entries(self.install.root) if self._earlier else (),
                keep_mtimes=self.install.keep_mtimes,
            )
            for entry in self._unchanged:
                del groups[entry.entry]
            self._groups = groups
            leaves = {leaf for each in groups.values() for leaf in each}
            lacking = begin_writing(
                self.directory,
                self._writer,
                [each for each in members if each.path in leaves],
            )
            require_space([Need(self.directory, tuple(part.length for part in lacking))])
            return lacking

    def write_span(self, span: Span, data: memoryview) -> None:
        """Take the parts of a span, whose bytes `data` were verified; raises as `write`."""
        with self._translated(), self._writing:
            self._writer.write_span(span, data)

    def stop(self) -> None:
        """Let every thread that waits in `write` fail. Idempotent."""
        self._sink.stop()

    def finish_writing(self) -> None:
        """Check that every byte of the bundle came.

        Raises:
            BundleError, InstallVerificationError, InstallError
        """
        with self._translated():
            if self._map is None:
                self._sink.finish()
            files, self._directories = self._writer.finish()
            self._files = {file.path: file for file in files}
            self._writer.close()

    def prepare(self, *, replaces: bool = False) -> StagedTree:
        """Let the kind adapt the tree to its root; what can be moved in is on the disk.

        Entries that are in the root are for comparison only, unless they are to be replaced, or
        are at fault where that means a crash left them (`RootInstall.atomic_entries`).

        Raises:
            UnsafePathError: what it refers to is not safe.
            RelocationError: a fix-up cannot make the tree right for this root.
            InstallVerificationError, NoSpaceError, OSError
        """
        self._require_intact()
        groups = self._groups
        if groups is None:
            groups = self._entries(self._files, self._directories)
        arrived = groups
        files, directories = self._files, self._directories
        touched: dict[str, FileContent] | None = {}
        dropped: dict[str, str] = {}
        unverified: dict[str, str] = {}
        for fixup in self.install.fixups:
            report = fixup(self.directory, self.workspace.root)
            dropped.update(report.dropped)
            unverified.update(report.unverified)
            if touched is not None:
                touched = None if report.touched is None else {**touched, **report.touched}
        remove_emptied(self.directory, dropped)
        if touched is None or dropped:
            files, directories = self._look_again()
            groups = self._entries(files, directories)
        elif touched:
            files = {**files, **self._rewritten(touched)}
        self._apply_access(TREE)
        existing, repairs = (set(), {}) if replaces else self._existing(groups)
        if self.install.atomic_entries:
            repairs |= self._faults(each for each in existing if each not in repairs)
        for_comparison = frozenset(existing - repairs.keys())
        waits = not self.in_memory and (self.install.durable or not boot_id())
        if waits:
            fleeting = {leaf for entry in for_comparison for leaf in groups[entry]}
            self._sync(
                [path for path in files if path not in fleeting],
                [path for path in directories if not for_comparison & {path, *ancestors(path)}],
            )
        entries = tuple(
            InstalledEntry(entry, tuple(files[leaf] for leaf in leaves if leaf in files))
            for entry, leaves in groups.items()
        )
        return StagedTree(
            self._place,
            entries,
            dropped,
            unverified,
            frozenset(arrived),
            for_comparison,
            repairs,
            self._unchanged,
            self._earlier.looked_at(self.install.root) if self._earlier else -inf,
            "" if waits or self.in_memory else boot_id(),
        )

    def close(self, *, keep: bool = False) -> None:
        """Remove what is staged, unless it was moved away. Idempotent.

        With `keep` it stays, if parts of it can be used again, for the next fetch.
        """
        self._writer.close()
        if self._place.held.descriptor >= 0:
            self._let_go(keep=keep and self._map is not None)

    def _let_go(self, *, keep: bool = False) -> None:
        place = self._place
        if not keep:
            with suppress(OSError):  # then it costs space until the next install
                for name in place.held.names():
                    place.held.remove_tree(name)
                os.rmdir(f"{STAGING}/{place.name}", dir_fd=self.workspace.held.descriptor)
        place.held.close()
        remove_if_unused(self.workspace, SYSTEM_CLOCK)
        self.workspace.close()

    def _existing(self, entries: Iterable[str]) -> tuple[set[str], dict[str, str]]:
        """Return those of `entries` that are in the root, and those lost with the machine."""
        receipts = self._earlier.receipts(self.install.root) if self._earlier else ()
        with self.workspace.root_if_any() as root:
            if root is None:
                return set(), {}
            existing = existing_in(root, entries)
            return existing, dict(lost_entries(root, existing, receipts))

    def _apply_access(self, path: str) -> None:
        """Give something below the private directory, `TREE` or below, the access that all get."""
        descriptor = self._place.held.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            self._access.apply(descriptor)
        finally:
            os.close(descriptor)

    def _entries(self, files: Iterable[str], directories: tuple[str, ...]) -> dict[str, list[str]]:
        return group_entries(leaves_of(files, directories), self.install.entry_of)

    def _faults(self, entries: Iterable[str]) -> dict[str, str]:
        """Return which of `entries`, as they are, are seen to be at fault, and why."""
        root, judge = self.workspace.root, self.install.judge
        verdicts = ((entry, judge(root, entry, self.directory)) for entry in entries)
        return {
            entry: v.unusable_reason
            for entry, v in verdicts
            if v.unusable_reason and not v.is_unreadable
        }

    def _require_intact(self) -> None:
        """Refuse files that changed after they arrived; only those with other times are read."""
        changed_at_ns, tree = self._writer.changed_at_ns, os.fspath(self.directory)
        found = stamp_columns(tree, list(self._files))
        for (path, file), found_ns in zip(self._files.items(), found.ctimes_ns, strict=True):
            if found_ns == changed_at_ns[path]:
                continue
            if describe(f"{tree}/{path}", path).checksum != file.checksum:
                raise InstallVerificationError(
                    f"{self._place.held.path / TREE / path} is not what was received: it was "
                    "changed on this node"
                )

    def _look_again(self) -> tuple[dict[str, InstalledFile], tuple[str, ...]]:
        """Return files and directories as the fix-ups left them; read only what they changed."""
        files: dict[str, InstalledFile] = {}
        directories: list[str] = []
        pending = [""]
        while pending:
            above = pending.pop()
            with os.scandir(self.directory / above) as items:
                for item in items:
                    path = f"{above}/{item.name}" if above else item.name
                    found = item.stat(follow_symlinks=False)
                    if stat.S_ISDIR(found.st_mode):
                        directories.append(path)
                        pending.append(path)
                        if path not in self._directories:
                            self._apply_access(f"{TREE}/{path}")
                    elif not stat.S_ISREG(found.st_mode):
                        raise InstallVerificationError(f"staged '{shown(path)}' is no regular file")
                    elif (
                        path in self._files
                        and self._writer.changed_at_ns[path] == found.st_ctime_ns
                    ):
                        files[path] = self._files[path]
                    else:
                        files[path] = self._described(path)
        return files, tuple(sorted(directories))

    def _rewritten(self, touched: Mapping[str, FileContent]) -> dict[str, InstalledFile]:
        """Describe files that came, and into which a fix-up wrote."""
        files = {}
        found = stamp_columns(os.fspath(self.directory), list(touched))
        for (path, now), mode, size, mtime_ns in zip(
            touched.items(), found.modes, found.sizes, found.mtimes_ns, strict=True
        ):
            if not stat.S_ISREG(mode) or size != now.size:
                raise InstallVerificationError(
                    f"staged '{shown(path)}' is not what was written to it"
                )
            came = self._files[path]
            files[path] = InstalledFile(
                path,
                size,
                stat.S_IMODE(mode),
                mtime_ns,
                crc32c_hex(now.checksum),
                (came.size, came.checksum),
            )
        return files

    def _described(self, path: str) -> InstalledFile:
        """Describe a file that a fix-up wrote, and give it the access that all get."""
        place = f"{self.directory}/{path}"
        found = os.lstat(place)
        if not stat.S_ISREG(found.st_mode):
            raise InstallVerificationError(f"staged '{shown(path)}' is no regular file")
        self._apply_access(f"{TREE}/{path}")
        came = self._files.get(path)
        arrived = None if came is None else (came.size, came.checksum)
        return describe(place, path)._replace(arrived=arrived)

    def _sync(self, files: Iterable[str], directories: Iterable[str]) -> None:
        tree = self.directory
        held = self._place.held
        with ThreadPoolExecutor(_SYNC_THREADS, "mx-install") as pool:
            list(pool.map(sync_file, (f"{tree}/{path}" for path in files)))
            list(pool.map(held.sync, (TREE, *(f"{TREE}/{path}" for path in directories))))

    def _translated(self) -> AbstractContextManager[None]:
        return os_errors_translated(f"stage for {self.install.root}")
