"""Stage a root's bundle in its workspace: unpack, check, fix up, make durable, describe."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from mx_artifacts.bundle.scan import BundleMember
from mx_artifacts.bundle.unpack import unpack_bundle
from mx_artifacts.errors import InstallVerificationError
from mx_artifacts.install.access import Access
from mx_artifacts.install.base import RootInstall
from mx_artifacts.install.entries import ancestors, group_entries, leaves_of
from mx_artifacts.install.files import fsync_directory, stands
from mx_artifacts.install.receipt import InstalledEntry, InstalledFile
from mx_artifacts.install.workspace import Workspace

_SYNC_THREADS = 16
"""A file system commits concurrent fsyncs together: 0.8 s instead of 2.3 s for 5,000 small files
on ext4. syncfs would be one call, but waits for whatever else is dirty there (weights, 100 GB)."""
_BLOCK_BYTES = 1024 * 1024


@dataclass(frozen=True)
class StagedTree:
    """A tree that is ready to be moved in; `entries` are in sorted order.

    Those `for_comparison` are not: they stand in the root, and are not on the disk for certain.
    `repairs` has those that take the place of one at fault, and its fault.
    """

    directory: Path
    entries: tuple[InstalledEntry, ...]
    dropped: Mapping[str, str]
    unverified: Mapping[str, str] = field(default_factory=dict)
    for_comparison: frozenset[str] = frozenset()
    repairs: Mapping[str, str] = field(default_factory=dict)


def stage(
    root: RootInstall, workspace: Workspace, access: Access, *, replace: bool = False
) -> StagedTree:
    """Unpack and prepare `root.bundle` for `workspace.root`; what can be moved in is on the disk.

    Entries that stand there are staged for comparison only, unless they are to be replaced, or are
    at fault where that means a crash left them (`RootInstall.appear_whole`).

    Raises:
        BundleError, UnsafePathError: the bundle, or what it refers to, is not safe.
        RelocationError: a fix-up cannot make the tree right for this root.
        InstallVerificationError: the staged tree is not what the bundle lists.
        NoSpaceError, OSError: it cannot be written.
    """
    tree = workspace.new_staging_directory()
    members = unpack_bundle(root.bundle, tree)
    _verify(tree, members, access)
    dropped: dict[str, str] = {}
    unverified: dict[str, str] = {}
    for fixup in root.fixups:
        report = fixup(tree, workspace.root)
        dropped.update(report.dropped)
        unverified.update(report.unverified)
    _remove_emptied(tree, dropped)
    files, directories = _walk(tree, access)  # again: fix-ups write files of their own
    groups = group_entries(leaves_of(files, directories), root.entry_of)
    standing = [] if replace else [e for e in groups if stands(workspace.root, e)]
    repairs = _faults(root, workspace.root, tree, standing) if root.appear_whole else {}
    for_comparison = frozenset(standing) - repairs.keys()
    fleeting = {leaf for entry in for_comparison for leaf in groups[entry]}
    lasting = [d for d in directories if not for_comparison & {d, *ancestors(d)}]
    with ThreadPoolExecutor(_SYNC_THREADS, "mx-install") as pool:
        described = pool.map(lambda path: _describe(tree, path, path not in fleeting), files)
        described_by_path = {file.path: file for file in described}
        list(pool.map(fsync_directory, (tree, *(tree / path for path in lasting))))
    entries = (
        InstalledEntry(
            entry, tuple(described_by_path[leaf] for leaf in leaves if leaf in described_by_path)
        )
        for entry, leaves in groups.items()
    )
    return StagedTree(tree, tuple(entries), dropped, unverified, for_comparison, repairs)


def _faults(root: RootInstall, place: Path, tree: Path, entries: Iterable[str]) -> dict[str, str]:
    """Return which of `entries`, as they stand in `place`, are at fault, and why."""
    verdicts = ((entry, root.judge(place, entry, tree)) for entry in entries)
    return {entry: verdict.fault for entry, verdict in verdicts if verdict.fault}


def _remove_emptied(tree: Path, dropped: Iterable[str]) -> None:
    """Remove directories in which fix-ups left nothing: an empty one must replace no full one."""
    for path in dropped:
        for above in reversed(ancestors(path)):
            try:
                (tree / above).rmdir()
            except OSError:
                break  # something is in it, or it is gone


def _verify(tree: Path, members: Sequence[BundleMember], access: Access) -> None:
    files, _ = _walk(tree, access)
    wanted = {member.path: member.size for member in members if not member.is_dir}
    wrong = [path for path in {*files, *wanted} if files.get(path) != wanted.get(path)]
    if wrong:
        path = min(wrong)
        raise InstallVerificationError(
            f"staged {path!r} has {files.get(path)} bytes, the bundle says {wanted.get(path)}"
        )


def _walk(tree: Path, access: Access) -> tuple[dict[str, int], list[str]]:
    """Return files with their sizes [bytes] and directories, and give all of them `access`."""
    files: dict[str, int] = {}
    directories: list[str] = []
    access.apply(tree, tree.lstat())
    pending = [""]
    while pending:  # strings, not Paths: this runs twice over up to a million files
        above = pending.pop()
        with os.scandir(tree / above) as items:
            for item in items:
                relative = f"{above}/{item.name}" if above else item.name
                found = item.stat(follow_symlinks=False)
                if stat.S_ISDIR(found.st_mode):
                    directories.append(relative)
                    pending.append(relative)
                elif stat.S_ISREG(found.st_mode):
                    files[relative] = found.st_size
                else:
                    raise InstallVerificationError(f"staged {relative!r} is no plain file")
                access.apply(item.path, found)
    return files, directories


def _describe(tree: Path, relative: str, lasts: bool) -> InstalledFile:
    """Hash a file and, if it `lasts`, make it durable, with the file opened once for both."""
    digest = hashlib.sha256()
    descriptor = os.open(f"{tree}/{relative}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        while block := os.read(descriptor, _BLOCK_BYTES):
            digest.update(block)
        found = os.fstat(descriptor)
        # Our own read must not hide the engine's: under relatime only a read of a file whose
        # access time is not past its change time is written down. usage.py looks for that.
        with suppress(PermissionError):  # not the file's owner
            os.utime(descriptor, ns=(found.st_ctime_ns, found.st_mtime_ns))
        if lasts:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return InstalledFile(
        path=relative,
        size=found.st_size,
        mode=stat.S_IMODE(found.st_mode),
        mtime_ns=found.st_mtime_ns,
        sha256=digest.hexdigest(),
    )
