"""Values of an install: what is installed, and the results; other packages use these, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from mx_artifacts.kinds.base import Fixup
from mx_artifacts.kinds.existing_entries import ExistingEntryJudge, no_judgement


@dataclass(frozen=True)
class ArtifactOrigin:
    """The artifact that is installed and its sources; kept in the receipt.

    `transport` has the transports that its bytes came by ("stream"), joined by commas; "" if
    nothing was transferred, or the receipt is older than that.
    """

    artifact_id: str
    mx_source_id: str
    worker_id: str
    endpoint: str
    kind: str
    transport: str = ""


@dataclass(frozen=True)
class RootInstall:
    """One cache root, and how its kind wants a bundle to be installed there.

    Attributes:
        name: "" for the kind's primary root, else the root's name.
        root: where the engine looks; need not exist. It may itself be a symbolic link.
        entry_of: maps a relative path to its entry, as `CacheKind.install_entry_of`.
        fixups: run in order on the staged tree.
        keep_mtimes: whether the engine looks at modification times, as in `PackRules`.
        judge: returns whether an entry that was there before will be used.
        atomic_entries: whether one at fault yields to the fetched one, as in `CacheKind`.
        touched_on_hit: files whose modification time a hit moves, as in `Signs`.
        durable: wait until files are on the disk, so that they outlive a power cut from the
            receipt on; else a receipt says that they may not have (docs/adr/0018).
    """

    name: str
    root: Path
    entry_of: Callable[[str], str]
    fixups: tuple[Fixup, ...] = ()
    keep_mtimes: bool = False
    judge: ExistingEntryJudge = no_judgement
    atomic_entries: bool = False
    touched_on_hit: tuple[str, ...] = ()
    durable: bool = False


@dataclass(frozen=True)
class RootReport:
    """What happened to one root; entries are "/"-separated paths below it.

    Attributes:
        name: as in `RootInstall`.
        root: the root with links resolved.
        installed: entries that were moved in, replaced ones among them.
        repaired: those of `installed` that took the place of one at fault, and its fault.
        kept: entries that were there before and won.
        dropped: entries that were left out, and why.
        files: how many files the installed entries have.
        bytes: their sizes, summed [bytes].
        unverified: what was moved in, or kept, although this node cannot know whether it is right,
            and why.
        same: those of `kept` that are known to be, byte for byte, what was fetched.
        unusable: those of `kept` that the engine will not use as they are, and why.
    """

    name: str
    root: Path
    installed: tuple[str, ...]
    kept: tuple[str, ...]
    dropped: Mapping[str, str]
    files: int
    bytes: int
    unverified: Mapping[str, str] = field(default_factory=dict)
    same: tuple[str, ...] = ()
    unusable: Mapping[str, str] = field(default_factory=dict)
    repaired: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class InstallReport:
    """The outcome of `install_artifact`, one `RootReport` for each root in the caller's order."""

    receipt_path: Path
    roots: tuple[RootReport, ...]

    @property
    def unchanged(self) -> bool:
        """True when every root already had every entry, so that nothing was written to it."""
        return not any(root.installed or root.dropped for root in self.roots)

    @property
    def nothing_usable(self) -> bool:
        """True when no entry, be it installed or kept, will be used."""
        return any(root.kept or root.dropped for root in self.roots) and not any(
            root.installed or set(root.kept) - root.unusable.keys() for root in self.roots
        )


class Agreement(Protocol):
    """Asks others whether an install may continue. If a call raises, the install is taken back.

    The roots' locks are held meanwhile, so other installers wait.
    """

    def before_commit(self, artifact_id: str) -> None:
        """Return when entries may be moved in; everything is staged, nothing is moved."""
        ...

    def before_receipt(self, roots: Sequence[RootReport]) -> None:
        """Return when what was moved in may stay; only the receipt's name is left to be made."""
        ...


class Alone:
    """Agrees at once, for installs without a group."""

    def before_commit(self, artifact_id: str) -> None:
        """Return at once."""

    def before_receipt(self, roots: Sequence[RootReport]) -> None:
        """Return at once."""


ALONE = Alone()
