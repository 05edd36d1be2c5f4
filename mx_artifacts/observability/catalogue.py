"""Every event that the library and the central server emit, one class each.

docs/operations/events.md is written from this module. A sink tells events apart by class; `name` is
what `--format jsonl` prints as `event`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from mx_artifacts.errors import MxArtifactsError
from mx_artifacts.observability.events import Event

# --- several kinds --------------------------------------------------------------------------------


@dataclass(frozen=True)
class KindSkipped(Event):
    """A kind that may be absent is, as `error` says: it has no source, or no place on this node."""

    name: ClassVar[str] = "kind.skipped"

    kind: str
    error: MxArtifactsError


@dataclass(frozen=True)
class KindFailed(Event):
    """One of several kinds failed by `error`; the others go on."""

    name: ClassVar[str] = "kind.failed"

    kind: str
    error: MxArtifactsError


@dataclass(frozen=True)
class IdentityUnchecked(Event):
    """A kind's identity leaves out `values`; a cache that differs in one of them matches too."""

    name: ClassVar[str] = "kind.unchecked"

    kind: str
    values: Sequence[str]


@dataclass(frozen=True)
class RootUngrouped(Event):
    """A root that all nodes of an engine must have, or none, is installed on this node alone.

    An engine that has it on some of its nodes only can hang for 30 minutes. `root` is its name.
    """

    name: ClassVar[str] = "kind.ungrouped"

    kind: str
    root: str


# --- publishing ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class EngineAwaited(Event):
    """A publisher waits until the engine's health page at `url` says that the engine is ready."""

    name: ClassVar[str] = "publish.engine_awaited"

    url: str


@dataclass(frozen=True)
class RootsAwaited(Event):
    """A kind's primary root holds no files yet; the kind is published when they come.

    `decided_by` is the option or variable that says where the root is.
    """

    name: ClassVar[str] = "publish.roots_awaited"

    kind: str
    root: str
    decided_by: str


@dataclass(frozen=True)
class RootsSettling(Event):
    """A publisher waits until nothing changes in `roots` any more."""

    name: ClassVar[str] = "publish.settling"

    roots: Sequence[str]


@dataclass(frozen=True)
class RootsUnsettled(Event):
    """A kind's roots have not settled for `changing_seconds`, so it is not sealed (again) yet.

    `is_served`: what was sealed of the kind before is served meanwhile.
    """

    name: ClassVar[str] = "publish.unsettled"

    kind: str
    changing_seconds: float
    is_served: bool


@dataclass(frozen=True)
class SealStarted(Event):
    """A kind's roots are packed and sealed now."""

    name: ClassVar[str] = "seal.started"

    kind: str


@dataclass(frozen=True)
class RootPacked(Event):
    """A cache root was packed into its bundle; `skipped`: paths that were left out, and why."""

    name: ClassVar[str] = "seal.packed"

    root: str
    file_count: int
    content_bytes: int
    bundle_bytes: int
    skipped: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class ServerAwaited(Event):
    """The central server cannot be reached, because of `error`; a publisher waits for it."""

    name: ClassVar[str] = "publish.waiting"

    error: MxArtifactsError
    seconds_left: float


@dataclass(frozen=True)
class WorkerPortChanged(Event):
    """A worker listens on another port than the wanted one, which another process uses."""

    name: ClassVar[str] = "worker.port_changed"

    wanted_port: int
    port: int


@dataclass(frozen=True)
class PublishFailed(Event):
    """A kind that is followed cannot be sealed or announced, because of `error`.

    It is tried again when its roots change, or where the error is retryable at the next look.
    `is_served`: what was sealed of the kind before is served on.
    """

    name: ClassVar[str] = "publish.failed"

    kind: str
    error: MxArtifactsError
    is_served: bool


@dataclass(frozen=True)
class SeedFailed(Event):
    """A target that should serve on what it fetches cannot; the fetch itself goes on."""

    name: ClassVar[str] = "seed.failed"

    error: MxArtifactsError


# --- fetching ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DiscoveryWaiting(Event):
    """No source can be used yet, because of `error`; the next try follows."""

    name: ClassVar[str] = "discover.waiting"

    error: MxArtifactsError
    seconds_left: float


@dataclass(frozen=True)
class FetchWaiting(Event):
    """Another process of this node fetches the same artifact into the same roots."""

    name: ClassVar[str] = "fetch.waiting"

    error: MxArtifactsError


@dataclass(frozen=True)
class TransferStarted(Event):
    """The tables are known and verified; reading begins. A span is what one read carries."""

    name: ClassVar[str] = "transfer.started"

    total_bytes: int
    span_count: int


@dataclass(frozen=True)
class SpanReceived(Event):
    """A span was read and verified."""

    name: ClassVar[str] = "transfer.span"

    length_bytes: int


@dataclass(frozen=True)
class SourceFailed(Event):
    """A source failed by `error`; what it did not deliver is read from others, if there are any."""

    name: ClassVar[str] = "transfer.source_failed"

    endpoint: str
    error: MxArtifactsError


@dataclass(frozen=True)
class TransferFinished(Event):
    """Every span was received and verified."""

    name: ClassVar[str] = "transfer.finished"

    total_bytes: int
    span_count: int


@dataclass(frozen=True)
class FollowFailed(Event):
    """A look for something new of a kind failed by `error`; the next look tries again."""

    name: ClassVar[str] = "follow.failed"

    kind: str
    error: MxArtifactsError


# --- installing ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class RootsLocked(Event):
    """An install holds the locks of its roots."""

    name: ClassVar[str] = "install.locked"

    roots: Sequence[str]


@dataclass(frozen=True)
class RootRecovered(Event):
    """What an interrupted install left in a root was settled: taken back, or found complete."""

    name: ClassVar[str] = "install.recovered"

    root: str
    taken_back: bool


@dataclass(frozen=True)
class RootStaged(Event):
    """All files of a root are staged beside it."""

    name: ClassVar[str] = "install.staged"

    root: str
    files: int


@dataclass(frozen=True)
class MovesJournaled(Event):
    """The moves into a root are in its journal; from now on a crash is recovered from."""

    name: ClassVar[str] = "install.journaled"

    root: str
    moves: int


@dataclass(frozen=True)
class EntryMoved(Event):
    """An entry was renamed into its root; `entry` is "" where the whole root was."""

    name: ClassVar[str] = "install.moved"

    root: str
    entry: str


@dataclass(frozen=True)
class ReceiptWritten(Event):
    """The install is complete; its receipt is durable."""

    name: ClassVar[str] = "install.receipt"

    path: str


@dataclass(frozen=True)
class EntryRemoved(Event):
    """An uninstall removed an entry."""

    name: ClassVar[str] = "uninstall.removed"

    root: str
    entry: str


# --- groups --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GroupJoined(Event):
    """This node takes part in a round of its group."""

    name: ClassVar[str] = "group.joined"

    group: str
    member_id: str
    round_id: str


@dataclass(frozen=True)
class GroupWaiting(Event):
    """Not all members of the group are ready; `reason` names those that are not."""

    name: ClassVar[str] = "group.waiting"

    group: str
    reason: str


@dataclass(frozen=True)
class GroupCommitted(Event):
    """All members are ready, so that each moves what it staged."""

    name: ClassVar[str] = "group.commit"

    group: str


@dataclass(frozen=True)
class GroupDone(Event):
    """All members have installed."""

    name: ClassVar[str] = "group.done"

    group: str


# --- the central server --------------------------------------------------------------------------


@dataclass(frozen=True)
class ServerStarted(Event):
    """The central server answers calls at `address` (host:port), and keeps records in `backend`."""

    name: ClassVar[str] = "server.started"

    address: str
    backend: str
    survives_restart: bool
    """Whether records outlive the server process."""
    shared: bool
    """Whether several servers may use the same records at once."""


@dataclass(frozen=True)
class SourcePublished(Event):
    """A worker published its record, or published it again."""

    name: ClassVar[str] = "server.published"

    mx_source_id: str
    worker_id: str


@dataclass(frozen=True)
class RecordsSwept(Event):
    """The reaper marked silent workers STALE, or deleted records that were STALE for long."""

    name: ClassVar[str] = "server.swept"

    marked_stale: int
    deleted: int


@dataclass(frozen=True)
class BackendDown(Event):
    """The metadata backend cannot be reached; calls are answered UNAVAILABLE until it is back."""

    name: ClassVar[str] = "server.backend_down"

    error: MxArtifactsError


@dataclass(frozen=True)
class BackendUp(Event):
    """The metadata backend answers again."""

    name: ClassVar[str] = "server.backend_up"
