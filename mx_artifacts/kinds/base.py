"""A cache kind, as data: one module per kind declares a `CacheKind`; `registry.py` finds them.

To add a kind, write mx_artifacts/kinds/<name>.py with a module-level `KIND`, list it in
`registry.py`, and add a fixture to tests/support/kind_trees.py. Everything that is special about
the kind is in its module: how to probe the values of its identity, which tools it needs, and how
its engine shows why it compiled again. A third party's `KIND` is found by the entry point that its
package declares (docs/adr/0013).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from mx_artifacts.bundle.entry import EntryView
from mx_artifacts.bundle.rules import PackRules
from mx_artifacts.core.digest import crc32c
from mx_artifacts.core.identity import AnyBackendFramework, SourceType
from mx_artifacts.kinds.tools import Tool
from mx_artifacts.kinds.usage_markers import UsageMarkers
from mx_artifacts.node.environment import Environment
from mx_artifacts.probes.base import IdentityValue


def _no_obstacle() -> str:
    return ""


@dataclass(frozen=True)
class RootRule:
    """A cache root of a kind.

    `name` is "" for the primary root (bundle `artifact.tar`), else the bundle is `<name>.tar`.
    `locate` returns where the engine looks, and which variable (or default) decided, for messages.
    It goes by the environment that it is given and by the engine (UNKNOWN: none), whether that is
    installed here or not. `relocation_obstacle` says why, on this node, a cache that was made for
    another root could not be used, or "" where it can. A root with
    `required_identity` identity fields is off: it is shipped, and installed, only where its path is
    stated, and then so must be these fields; the identity then has `extra_identity` too.
    """

    name: str
    locate: Callable[[Environment, AnyBackendFramework], tuple[Path, str]]
    optional: bool = False
    relocation_obstacle: Callable[[], str] = _no_obstacle
    required_identity: tuple[str, ...] = ()
    extra_identity: tuple[str, ...] = ()


class Fixup(Protocol):
    """Adapts a staged tree to the root it will be in, before it is moved there."""

    def __call__(self, staged: Path, root: Path) -> FixupReport:
        """Rewrite files below `staged` so that they are right below `root`.

        Raises:
            RelocationError: the tree cannot be made right for this root.
            UnsafePathError: it refers to something outside its root.
        """
        ...


class FileContent(NamedTuple):
    """What a fix-up wrote into a file: size [bytes] and CRC32C."""

    size: int
    checksum: int

    @classmethod
    def of(cls, content: bytes) -> FileContent:
        """Return size and checksum of what is written."""
        return cls(len(content), crc32c(content))


@dataclass(frozen=True)
class FixupReport:
    """What a fix-up changed: files rewritten, entries dropped and why.

    `unverified` has entries that are kept although this node cannot know whether they are right.
    `touched` has all files that it wrote to, and what they hold now, if it made and removed none
    but what it dropped; with None everything staged is looked at again.
    """

    rewritten: int = 0
    dropped: Mapping[str, str] = field(default_factory=dict)
    unverified: Mapping[str, str] = field(default_factory=dict)
    touched: Mapping[str, FileContent] | None = None


@dataclass(frozen=True)
class EntryVerdict:
    """What becomes of an entry that exists in a root; both are "" where it is fit for use there.

    Attributes:
        unusable_reason: why its engine will not use it.
        unverified_reason: why this node cannot know whether its engine will.
        is_unreadable: the reason is that it could not be looked at; so it may be in use, and is not
            replaced unasked.
    """

    unusable_reason: str = ""
    unverified_reason: str = ""
    is_unreadable: bool = False


class ExistingEntryRule(Protocol):
    """Judges an existing entry, beyond what `PackRules.fault_of` has found no fault with."""

    def __call__(self, entry: EntryView, root: Path, fetched: Path | None) -> EntryVerdict:
        """Judge `entry` of `root`, a path without links; changes nothing.

        `fetched` is a tree with the same entry as it was fetched and made right for `root`, None
        where there is none.

        Raises:
            OSError: it cannot be read.
        """
        ...


@dataclass(frozen=True)
class RankSet:
    """The ranks of one compiled model below `directory`: the complete and the incomplete ones.

    `lacking` maps a rank's directory to what it lacks of the files that other ranks have.
    """

    directory: str
    complete: int
    lacking: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class KeyFactors:
    """How to read the files in which an engine writes the factors of its cache key.

    With them, `usage` and `why` say why an engine compiled again.

    Attributes:
        file_name: what such a file is called.
        finding: a clause that goes before the factors that differ, and says what they led to.
        max_bytes: maximum size of such a file [bytes]; a longer one is not read.
        differences: maps each factor that differs between an installed cache and the one in use,
            both given as the contents of their files, to (installed, in use); empty where one of
            them has no such file that can be understood. Does not raise.
        compare_files: maps each factor that differs between two such files, or directories that
            hold one, to (first, second). Raises ConfigurationError where there is none, or more
            than one.
        advice_for: returns what to do where this factor differs.
    """

    file_name: str
    max_bytes: int
    finding: str
    differences: Callable[[Iterable[bytes], Iterable[bytes]], Mapping[str, tuple[str, str]]]
    compare_files: Callable[[Path, Path], Mapping[str, tuple[str, str]]]
    advice_for: Callable[[str], str]


@dataclass(frozen=True)
class CacheKind:
    """A cache kind as data.

    Attributes:
        name: as on the command line ("triton").
        source_type: its number on the wire.
        roots: the primary root first.
        pack: rules for every root; `fault_of` has at least kinds/entry_checks.py: binary_fault.
        identity_fields: names of SourceIdentity fields that must be probed or stated.
        engine_fields: names of SourceIdentity fields that describe how the engine was started.
            They cannot be probed from what is installed; stated ones partition the pool.
        extra_parameters: names of extra identity parameters that must be probed or stated and
            that the reference's loaders have too (docs/protocol.md, "Identities").
        strict_parameters: further extra parameters that must be probed or stated. Without them, a
            wrong match would be possible; the reference does not have them.
        identity_values: how to find the values of the names above on a node, and what to do if two
            nodes differ in them. They are for names that are not in probes/common.py, or override
            those.
        tools: programs that the engine needs on a node, for `doctor` to look for.
        may_be_absent: those of the names above whose component need not be installed here. If it is
            not installed, the value is `ABSENT`, which is a known value.
        merge_entry_of: units of install, if they are smaller than those of `pack`. They are merged
            with existing files; a fix-up makes sure that this is possible.
        fixups: run in order on each staged root.
        existing_entry_rule: for kinds whose entries depend on their path or on the files around
            them.
        atomic_entries: whether each entry appears as a whole, by one rename. Then an entry in which
            `pack.fault_of` finds a fault is not work in progress but the result of a crash, and an
            install replaces it.
        loads_libraries: whether entries contain shared libraries, which cannot be loaded from a
            noexec mount.
        signs: how files show that an engine used the cache, or compiled.
        shares_source_type: the wire protocol has no number for this kind. So it uses that of
            another kind, and its identities name it in the extra parameter mx_kind.
        rank_sets: finds the ranks in the paths of a packed root, if its engine has one directory
            per rank. A rank that lacks files of other ranks compiles alone.
        key_factors: how to read the engine's file about the cache's key, if there is one.
    """

    name: str
    source_type: SourceType
    title: str
    roots: tuple[RootRule, ...]
    pack: PackRules
    identity_fields: tuple[str, ...]
    engine_fields: tuple[str, ...] = ()
    extra_parameters: tuple[str, ...] = ()
    strict_parameters: tuple[str, ...] = ()
    identity_values: Mapping[str, IdentityValue] = field(default_factory=dict, hash=False)
    tools: tuple[Tool, ...] = ()
    may_be_absent: frozenset[str] = frozenset()
    merge_entry_of: Callable[[str], str] | None = None
    fixups: tuple[Fixup, ...] = ()
    existing_entry_rule: ExistingEntryRule | None = None
    atomic_entries: bool = False
    loads_libraries: bool = True
    signs: UsageMarkers = field(default_factory=UsageMarkers)
    shares_source_type: bool = False
    rank_sets: Callable[[Iterable[str]], tuple[RankSet, ...]] | None = None
    key_factors: KeyFactors | None = None

    @property
    def install_entry_of(self) -> Callable[[str], str]:
        """Maps a relative path to the entry that is installed, kept or replaced as one."""
        return self.merge_entry_of or self.pack.entry_of

    def root_label(self, root_name: str) -> str:
        """Return what a root is called in messages and labels: the primary one as its kind."""
        return root_name or self.name


SIZES = ("tensor_parallel_size", "pipeline_parallel_size", "expert_parallel_size")
"""Identity fields that say how an engine's ranks are laid out."""

NEVER_PACKED = (
    # Locks: one that arrives was never taken here and is never released (torch's FileBaton, ninja).
    "*.lock",
    "lock",
    "locks",
    "lock_dir",
    ".ninja_lock",
    # Half-written: Triton and CuTe tmp.pid_<pid>_<uuid>/, Inductor .<pid>.<tid>.tmp and
    # <name>_CxxBuild/, TileLang .staging/.
    "tmp.*",
    "*.tmp",
    ".staging*",
    "*_CxxBuild",
    # Of this node or its file system: byte code, our own staging, NFS's unlinked files, fsck's.
    "__pycache__",
    ".mx-artifacts*",
    ".nfs*",
    "lost+found",
)
"""Never shipped by any kind (docs/cache-facts.md, 9.7)."""
