"""Finds out whether an engine used an installed cache, or compiled in addition to it.

No engine reports this, and a counter of hits may say "hit" while the engine compiles
(docs/cache-facts.md, 9.9). But files show it: a compile leaves new files under the root, a read
changes an access time if the mount keeps access times, and a lock shows that a compiler was at work
there.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from mx_artifacts.bundle.tree import scan_directory
from mx_artifacts.errors import NothingToPublishError
from mx_artifacts.filesystem.beneath import Directory
from mx_artifacts.filesystem.resolved_path import open_directory
from mx_artifacts.install.receipts.believed import check_roots
from mx_artifacts.install.receipts.lookup import claims, receipts_beside
from mx_artifacts.install.receipts.receipt import InstalledFile, RootReceipt, load_receipt
from mx_artifacts.kinds.base import CacheKind
from mx_artifacts.kinds.registry import get_kind
from mx_artifacts.kinds.usage_markers import matches
from mx_artifacts.node.mounts import keeps_access_times

_NAMED = 3
"""Names shown of a longer list."""
_NOT_THE_COMPILERS = (".mx-artifacts*", ".nfs*", "lost+found", "__pycache__")


class UsageVerdict(str, Enum):
    """What became of an installed cache."""

    HIT = "hit"
    RECOMPILED = "recompiled"
    UNUSED = "unused"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class RootUsage:
    """What the files of one root show. Names are entries: "/"-separated paths below the root.

    Attributes:
        root: the root with links resolved.
        ours: entries of the artifact: installed, or existing and kept.
        gone: those of them that no longer exist.
        read: those that were read since the install.
        unread: those that were certainly not read; for others it is unknown.
        rewritten: those in which a compiled file was written again.
        new: entries with files that were compiled after the install and belong to no install.
        signs: other paths that an engine changes when it looks for a cache: locks, marks of a hit.
        differences: the factors of the engine's own key in which the cache in use differs from the
            installed one, where its engine writes them down (vLLM): name to (installed, in use).
    """

    root: str
    ours: tuple[str, ...]
    gone: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    rewritten: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    signs: tuple[str, ...] = ()
    differences: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class UsageReport:
    """Whether an install was of use, why we think so, and what to do next ("" on a hit)."""

    receipt_path: Path
    artifact_id: str
    kind: str
    installed_at: str
    verdict: UsageVerdict
    reason: str
    next_step: str
    roots: tuple[RootUsage, ...]


def usage_of(receipt_path: str | Path, *, roots: Collection[Path] = ()) -> UsageReport:
    """Compare the roots of an install with its receipt. Call it when the engine has started.

    Changes nothing. A hit of the whole cache means that nothing was compiled since, and that
    something shows that an engine looked; where nothing shows it either way, it is unknown.
    Anything else that reads the files (a backup, a publisher) counts as a reader. `roots`: as those
    of `uninstall_artifact`.

    Raises:
        InstallError: the receipt cannot be read.
        ConfigurationError: its kind is not known here, or it names a root that is not believed.
    """
    path = Path(os.path.realpath(receipt_path))
    receipt = load_receipt(path)
    check_roots(path, receipt, roots)
    kind = get_kind(receipt.artifact.kind)
    since_ns = path.lstat().st_mtime_ns  # by the clock of the root's own file system
    beside = receipts_beside(path)
    usages = tuple(
        _usage(root, kind, since_ns, claims(beside, root.root)) for root in receipt.roots
    )
    verdict, reason = _judge(usages, receipt.installed_at)
    return UsageReport(
        receipt_path=path,
        artifact_id=receipt.artifact.artifact_id,
        kind=kind.name,
        installed_at=receipt.installed_at,
        verdict=verdict,
        reason=reason,
        next_step=_next_step(verdict, kind, usages),
        roots=usages,
    )


# --- what the files tell --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Found:
    path: str
    entry: str
    status: os.stat_result


def _usage(root: RootReceipt, kind: CacheKind, since_ns: int, owners: Collection[str]) -> RootUsage:
    try:
        with open_directory(Path(root.root)) as directory:
            return _usage_of(directory, root, kind, since_ns, owners)
    except (FileNotFoundError, NotADirectoryError):  # removed since
        gone = tuple(sorted(e.entry for e in root.installed if e.files))
        return RootUsage(root.root, tuple(sorted({*root.kept, *gone})), gone)


def _usage_of(
    directory: Directory,
    root: RootReceipt,
    kind: CacheKind,
    since_ns: int,
    owners: Collection[str],
) -> RootUsage:
    recorded = {file.path: file for entry in root.installed for file in entry.files}
    files, litter = _scan(directory, kind)
    there = {file.entry for file in files}
    # A directory for an engine's unfinished work may be an entry, but nobody reads it.
    kept = {e for e in root.kept if e in there or not _is_directory(directory, e)}
    ours = {*kept, *(entry.entry for entry in root.installed if entry.files)}
    compiled = [file for file in files if matches(file.path, kind.signs.compiled)]
    read = {file.entry for file in files if file.status.st_atime_ns > since_ns} & ours
    tracked = keeps_access_times(Path(root.root))
    new = {
        file.entry
        for file in compiled
        if file.path not in recorded and file.status.st_mtime_ns >= since_ns
    } - (set(owners) - ours)
    marks = (
        file.path
        for file in files
        if matches(file.path, kind.signs.touched_on_hit) and file.status.st_mtime_ns > since_ns
    )
    locks = (path for path, mtime_ns in litter.items() if mtime_ns > since_ns)
    return RootUsage(
        root=root.root,
        ours=tuple(sorted(ours)),
        gone=tuple(sorted({e.entry for e in root.installed if e.files} - there)),
        read=tuple(sorted(read)),
        unread=tuple(sorted(_unread(files, since_ns) & ours)) if tracked else (),
        rewritten=tuple(sorted({f.entry for f in compiled if _is_rewritten(f, recorded, kind)})),
        new=tuple(sorted(new)),
        signs=tuple(sorted((*marks, *locks))),
        differences=_differences(directory, files, kind, ours, new),
    )


def _scan(root: Directory, kind: CacheKind) -> tuple[list[_Found], dict[str, int]]:
    """Return the files that the kind counts, and the mtimes [ns] of those that it leaves out."""
    try:
        tree = scan_directory(root, kind.pack)
    except NothingToPublishError:  # removed since
        return [], {}
    files = [
        _Found(member.path, kind.install_entry_of(member.path), status)
        for member in tree.members
        if not member.is_dir
        for status in _status(root, member.path)
    ]
    litter = {
        skip.path: status.st_mtime_ns
        for skip in tree.skipped
        if not matches(skip.path, _NOT_THE_COMPILERS)
        for status in _status(root, skip.path)
    }
    return files, litter


def _status(root: Directory, path: str) -> Iterator[os.stat_result]:
    try:
        yield root.status_of(path)
    except (OSError, ValueError):
        return  # removed meanwhile, or a name made fit to be printed


def _is_directory(root: Directory, path: str) -> bool:
    return any(stat.S_ISDIR(status.st_mode) for status in _status(root, path))


def _unread(files: list[_Found], since_ns: int) -> set[str]:
    """Return the entries none of whose files can have been read since the install."""
    unsure = {
        file.entry
        for file in files
        # Under relatime, a read moves an access time that is not past the last change.
        if file.status.st_atime_ns > min(since_ns, file.status.st_ctime_ns)
    }
    return {file.entry for file in files} - unsure


def _is_rewritten(file: _Found, recorded: Mapping[str, InstalledFile], kind: CacheKind) -> bool:
    was = recorded.get(file.path)
    if was is None or matches(file.path, kind.signs.touched_on_hit):
        return False
    is_file = stat.S_ISREG(file.status.st_mode)
    return not is_file or (was.size, was.mtime_ns) != (
        file.status.st_size,
        file.status.st_mtime_ns,
    )


def _differences(
    root: Directory,
    files: Iterable[_Found],
    kind: CacheKind,
    ours: Collection[str],
    new: Collection[str],
) -> Mapping[str, tuple[str, str]]:
    factors = kind.key_factors
    if factors is None or not new:
        return {}
    named = [file for file in files if file.path.rpartition("/")[2] == factors.file_name]

    def contents(entries: Collection[str]) -> Iterator[bytes]:
        for file in named:
            if file.entry in entries:
                with suppress(OSError, ValueError):
                    yield root.read(file.path, factors.max_bytes)

    return factors.differences(contents(ours), contents(new))


# --- what that means ------------------------------------------------------------------------------


def _judge(roots: tuple[RootUsage, ...], installed_at: str) -> tuple[UsageVerdict, str]:
    ours = sum(len(root.ours) for root in roots)
    read = sum(len(root.read) for root in roots)
    new = [entry for root in roots for entry in root.new]
    rewritten = [entry for root in roots for entry in root.rewritten]
    gone = [entry for root in roots for entry in root.gone]
    signs = [path for root in roots for path in root.signs]
    what = f"{_count(ours)} of this artifact"
    if new or rewritten:
        done = [f"{_count(len(new))} compiled beside: {_names(new)}"] if new else []
        if rewritten:
            done.append(f"{_count(len(rewritten))} of ours compiled anew: {_names(rewritten)}")
        also = f"; {read} of the {what} were read" if read else ""
        return UsageVerdict.RECOMPILED, f"since {installed_at}, {' and '.join(done)}{also}"
    if len(gone) == ours:
        return UsageVerdict.UNUSED, f"nothing of this artifact's {_count(ours)} is there now"
    if read:
        return UsageVerdict.HIT, f"nothing was compiled since, and {read} of {what} were read"
    if signs:
        return (
            UsageVerdict.HIT,
            f"nothing was compiled since, and an engine looked: {_names(signs)}",
        )
    if all(len(root.unread) + len(root.gone) >= len(root.ours) for root in roots):
        return UsageVerdict.UNUSED, f"none of the {what} was read since {installed_at}"
    return (
        UsageVerdict.UNKNOWN,
        "nothing was compiled since, but this file system does not tell whether anything was read",
    )


def _next_step(verdict: UsageVerdict, kind: CacheKind, roots: tuple[RootUsage, ...]) -> str:
    if verdict is UsageVerdict.HIT:
        return ""
    if verdict is UsageVerdict.UNKNOWN:
        return "look for compile messages in the engine's log, once it has started"
    places = ", ".join(root.root for root in roots)
    if verdict is UsageVerdict.UNUSED:
        return (
            "start the engine; if it has run since the install, it looks in another directory "
            f"than {places}: compare its environment with `mx-artifact doctor --kind {kind.name}`"
        )
    differences = {name: d for root in roots for name, d in root.differences.items()}
    if differences and kind.key_factors is not None:
        listed = "; ".join(
            f"{name} was {_short(ours)}, is {_short(theirs)}"
            for name, (ours, theirs) in list(differences.items())[:_NAMED]
        )
        more = f"; and {len(differences) - _NAMED} more" if len(differences) > _NAMED else ""
        return f"{kind.key_factors.finding} ({listed}{more})"
    return (
        f"find what enters {kind.name}'s own key and differs from the source (versions, flags, "
        "paths), and make it equal, or state it on both nodes with --identity so that they do not "
        "match"
    )


def _count(number: int) -> str:
    return f"{number} entr{'y' if number == 1 else 'ies'}"


def _names(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
