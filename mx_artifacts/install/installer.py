"""Installs an artifact into its cache roots: all of it or nothing, under the roots' locks.

The steps of an install: find the workspace of each root, lock, recover from a dead installer, check
whether the artifact is already installed, adapt the staged trees, commit root by root, judge the
kept entries, write the receipt, clean up. An `Agreement` is asked twice: before the first move, and
before the receipt gets its name.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from mx_artifacts.errors import ConfigurationError, InstallError, RollbackFailedError
from mx_artifacts.filesystem.beneath import Directory
from mx_artifacts.filesystem.files import has_all
from mx_artifacts.filesystem.space import os_errors_translated
from mx_artifacts.install.base import (
    ALONE,
    Agreement,
    ArtifactOrigin,
    InstallReport,
    RootInstall,
    RootReport,
)
from mx_artifacts.install.commit import Committer, Outcome, recover_root
from mx_artifacts.install.kept_entries import KeptEntries, judge_kept, mark_changed_unverified
from mx_artifacts.install.receipts.cache import remember
from mx_artifacts.install.receipts.lookup import FoundReceipt, receipts_in
from mx_artifacts.install.receipts.receipt import (
    InstalledEntry,
    Receipt,
    RootReceipt,
    format_time,
    new_receipt_name,
    receipts_of,
    save_receipt,
)
from mx_artifacts.install.receipts.voucher import vouch
from mx_artifacts.install.staging.staging import StagedTree, Staging
from mx_artifacts.install.state.already_installed import find_installed
from mx_artifacts.install.workspace.acquire import locked_workspaces
from mx_artifacts.install.workspace.entries import ancestors
from mx_artifacts.install.workspace.workspace import RECEIPTS, Workspace
from mx_artifacts.observability.catalogue import (
    ReceiptWritten,
    RootRecovered,
    RootsLocked,
    RootStaged,
)
from mx_artifacts.observability.events import EventSink, ignore_events
from mx_artifacts.runtime.clock import SYSTEM_CLOCK, Clock
from mx_artifacts.runtime.gc_pause import gc_paused

logger = logging.getLogger(__name__)


def install_artifact(
    stagings: Sequence[Staging],
    *,
    artifact: ArtifactOrigin,
    replace: bool = False,
    lock_timeout_seconds: float,
    agreement: Agreement = ALONE,
    clock: Clock = SYSTEM_CLOCK,
    events: EventSink = ignore_events,
) -> InstallReport:
    """Install what was staged for every root; on any failure all roots are as they were.

    A root that is absent or empty appears as a whole, in one step. Otherwise, each entry appears as
    a whole. An existing entry is kept, or with `replace` replaced as a whole. An entry that a crash
    left unusable is always replaced, if the kind can distinguish it from work in progress. A reader
    sees the old or the new entry, never a mixture, even if this process is killed; then the next
    install into the root takes back the unfinished moves. If the artifact is already installed,
    nothing changes, and the report names the receipt of its last install. The report says which
    kept entries are not usable.

    `stagings` holds at least one, the primary root's first (the receipt is kept with it); each was
    written to its end, and is closed by the caller. Blocks; any thread. The events `install.*`
    report each step: locked, recovered, staged, journaled, moved, receipt.

    Raises:
        InstallLockedError: another installer holds a root for longer than `lock_timeout_seconds`.
        NoSpaceError: a file system is, or would become, full.
        UnsafePathError: the bundle, or a link below a root, would lead outside.
        BundleError, RelocationError, InstallVerificationError: this artifact cannot be installed
            here.
        RollbackFailedError: the changes could not all be taken back.
        ConfigurationError: two roots are one directory.
        InstallError: anything else that the operating system refuses.
        Errors of `agreement`.
    """
    places = [staging.install.root for staging in stagings]
    with os_errors_translated(f"install into {', '.join(map(str, places))}"):
        require_distinct(places)
        with locked_workspaces(places, lock_timeout_seconds, clock) as spaces:
            targets = list(map(_Target, stagings, spaces))
            install = _Install(targets, artifact, replace, agreement, clock, events)
            try:
                return install.run()
            except BaseException:
                install.recover()
                raise


_NOTHING_YET = Outcome(frozenset(), (), {})


@dataclass
class _Target:
    """One root on its way through an install."""

    staging: Staging
    workspace: Workspace
    staged: StagedTree | None = None
    outcome: Outcome = _NOTHING_YET
    kept_entries: KeptEntries = field(default_factory=KeptEntries)
    still_there: frozenset[str] = frozenset()
    """Entries that were dropped on the way, but were in the root before."""

    def judge_kept(self, find: Callable[[], Sequence[FoundReceipt]]) -> None:
        assert self.staged is not None, "judged are the entries of what was staged"
        dropped = self.staged.arrived & self.staged.dropped.keys()
        with self.workspace.root_if_any() as root:
            if root is None:  # all of it was dropped, and nothing was there
                return
            self.still_there = frozenset(entry for entry in dropped if has_all(root, [entry]))
            self.kept_entries = judge_kept(self.install, root, self.staged, self.kept)
            mark_changed_unverified(self.kept_entries, root, self.kept, find)

    @property
    def install(self) -> RootInstall:
        return self.staging.install

    @property
    def installed(self) -> tuple[InstalledEntry, ...]:
        entries = self.staged.entries if self.staged is not None else ()
        return tuple(entry for entry in entries if entry.entry in self.outcome.installed)

    @property
    def kept(self) -> tuple[str, ...]:
        return tuple(sorted({*self.outcome.kept, *self.still_there}))

    @property
    def repaired(self) -> Mapping[str, str]:
        repairs = self.staged.repairs if self.staged is not None else {}
        return {entry: fault for entry, fault in repairs.items() if self._is_installed(entry)}

    @property
    def dropped(self) -> Mapping[str, str]:
        """What was left out, and is missed: nothing that is fit is in its place."""
        fit = {*self.kept} - self.kept_entries.unusable.keys()
        dropped = self.staged.dropped if self.staged else {}
        missed = {p: why for p, why in dropped.items() if not fit & {p, *ancestors(p)}}
        return {**missed, **self.outcome.blocked}

    @property
    def unverified(self) -> Mapping[str, str]:
        doubts = self.staged.unverified if self.staged else {}
        installed = {path: why for path, why in doubts.items() if self._is_installed(path)}
        return {**installed, **self.kept_entries.unverified}

    def _is_installed(self, path: str) -> bool:
        return bool(self.outcome.installed & {path, *ancestors(path)})


@dataclass
class _Install:
    targets: Sequence[_Target]
    artifact: ArtifactOrigin
    replace: bool
    agreement: Agreement
    clock: Clock
    events: EventSink

    def run(self) -> InstallReport:
        self.events(RootsLocked([str(target.workspace.root) for target in self.targets]))
        self.recover()  # what an installer that was killed left
        already = None if self.replace else self._find_installed()
        if already is not None:
            self.agreement.before_commit(self.artifact.artifact_id)
            self.agreement.before_receipt(already.roots)
            return already
        self._stage()
        self.agreement.before_commit(self.artifact.artifact_id)
        receipt_path = self._commit()
        self._tidy()
        return InstallReport(receipt_path, tuple(map(_report, self.targets)))

    def recover(self, *, is_done: bool = False) -> None:
        """Bring every root to rest: after the receipt (`is_done`) forward, before it back."""
        spaces = [target.workspace for target in self._inner_first()]
        failures = [self._recover_root(workspace, is_done) for workspace in spaces]
        for failure in failures:
            if failure is not None:
                raise failure

    def _tidy(self) -> None:
        """Remove what the install needed; it is done, so what fails now is only reported."""
        try:
            self.recover(is_done=True)
        except OSError as error:
            logger.warning(
                "the install is complete, but not everything was cleaned up; the next install "
                "into the root does that: %s",
                error,
            )

    def _recover_root(self, workspace: Workspace, is_done: bool) -> RollbackFailedError | None:
        try:
            taken_back = recover_root(workspace, is_done=is_done)
        except RollbackFailedError as error:
            return error  # the other roots are recovered all the same
        self.events(RootRecovered(str(workspace.root), taken_back))
        return None

    def _inner_first(self) -> list[_Target]:
        """Order of taking back: first the moves into a root that is inside another root."""
        return sorted(self.targets, key=lambda target: target.workspace.root, reverse=True)

    def _find_installed(self) -> InstallReport | None:
        """Check again under the lock: another process may have installed the same artifact."""
        roots = {target.install.name: target.install.root for target in self.targets}
        first = self.targets[0].install  # one artifact is of one kind
        return find_installed(
            roots, self.artifact.artifact_id, first.judge, with_mtimes=first.keep_mtimes
        )

    @gc_paused()
    def _stage(self) -> None:
        """Adapt every root's tree to where it goes."""
        for target in self.targets:
            if not target.staging.workspace.is_same(target.workspace):
                raise InstallError(
                    f"{target.install.root} has changed since the transfer began: a mount, its "
                    "owner or its mode is different",
                    hint="fetch again",
                )
            target.staged = target.staging.prepare(replaces=self.replace)
            files = sum(len(entry.files) for entry in target.staged.entries)
            self.events(RootStaged(str(target.workspace.root), files))

    def _commit(self) -> Path:
        with self.targets[0].workspace.enter(RECEIPTS) as receipts:
            return self._commit_to(receipts)

    def _commit_to(self, receipts: Directory) -> Path:
        artifact_id, now_seconds = self.artifact.artifact_id, self.clock.now()
        name = new_receipt_name(receipts, artifact_id, now_seconds)
        path = receipts.path / name
        committer = Committer(path, self.replace, self.events)
        for target in self.targets:
            assert target.staged is not None, "every root was staged"
            target.outcome = committer.commit(target.workspace, target.staged)
            target.judge_kept(partial(receipts_in, receipts))
        reports = tuple(map(_report, self.targets))
        if not any(target.outcome.installed for target in self.targets):
            for earlier, _ in receipts_of(receipts, artifact_id):
                self.agreement.before_receipt(reports)
                return receipts.path / earlier
        receipt = Receipt(
            self.artifact, format_time(now_seconds), tuple(map(_root_receipt, self.targets))
        )
        for target in self.targets[1:]:
            vouch(target.workspace, path)
        save_receipt(receipts, name, receipt, lambda: self.agreement.before_receipt(reports))
        remember(receipts, name, receipt)
        self.events(ReceiptWritten(str(path)))
        return path


def require_distinct(roots: Sequence[Path]) -> None:
    """Refuse two roots that are one directory. Raises ConfigurationError."""
    seen: dict[str, Path] = {}
    for root in roots:
        resolved = os.path.realpath(root)
        other = seen.get(resolved)
        if other is not None:
            raise ConfigurationError(
                f"the roots {other} and {root} are the same directory",
                hint="use a different directory for each root of the artifact",
            )
        seen[resolved] = root


def _root_receipt(target: _Target) -> RootReceipt:
    return RootReceipt(
        name=target.install.name,
        root=str(target.workspace.root),
        installed=target.installed,
        kept=target.kept,
        dropped=target.dropped,
        made=target.outcome.made,
        unusable=target.kept_entries.unusable,
        boot_id=target.staged.boot_id if target.staged is not None else "",
    )


def _report(target: _Target) -> RootReport:
    files = [file for entry in target.installed for file in entry.files]
    return RootReport(
        name=target.install.name,
        root=target.workspace.root,
        installed=tuple(entry.entry for entry in target.installed),
        kept=target.kept,
        dropped=target.dropped,
        files=len(files),
        bytes=sum(file.size for file in files),
        unverified=target.unverified,
        same=tuple(target.kept_entries.same),
        unusable=target.kept_entries.unusable,
        repaired=target.repaired,
    )
