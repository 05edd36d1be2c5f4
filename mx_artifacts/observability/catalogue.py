"""Every event that the library and the central server emit, one class each.

docs/operations/events.md is generated from this module. A sink distinguishes events by class;
`--format jsonl` prints `name` as `event`. The base class `Event` compares and prints all events:
methods that dataclasses generate for each class would take a tenth of a command's start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from mx_artifacts.errors import MxArtifactsError
from mx_artifacts.observability.events import Event

# --- several kinds --------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class KindSkipped(Event):
    """A kind is skipped, because of `error`: it has no source, or no root on this node."""

    name: ClassVar[str] = "kind.skipped"

    kind: str
    error: MxArtifactsError


@dataclass(frozen=True, eq=False, repr=False)
class KindFailed(Event):
    """One of several kinds failed with `error`; the other kinds continue."""

    name: ClassVar[str] = "kind.failed"

    kind: str
    error: MxArtifactsError


@dataclass(frozen=True, eq=False, repr=False)
class IdentityUnchecked(Event):
    """A kind's identity leaves out `values`; a cache that differs in one of them matches, too."""

    name: ClassVar[str] = "kind.unchecked"

    kind: str
    values: Sequence[str]


@dataclass(frozen=True, eq=False, repr=False)
class RootUngrouped(Event):
    """A root that all nodes of an engine must have, or none, is installed without a group.

    An engine that has it on only some of its nodes can hang for 30 minutes. `root` is its name.
    """

    name: ClassVar[str] = "kind.ungrouped"

    kind: str
    root: str


# --- publishing ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class EngineAwaited(Event):
    """A publisher waits until the engine's health page at `url` says that the engine is ready."""

    name: ClassVar[str] = "publish.engine_awaited"

    url: str


@dataclass(frozen=True, eq=False, repr=False)
class RootsAwaited(Event):
    """A kind's primary root has no files yet; the kind is published when it has some.

    `decided_by` is the option or variable that states the path of the root.
    """

    name: ClassVar[str] = "publish.roots_awaited"

    kind: str
    root: str
    decided_by: str


@dataclass(frozen=True, eq=False, repr=False)
class RootsSettling(Event):
    """A publisher waits until `roots` do not change any more."""

    name: ClassVar[str] = "publish.settling"

    roots: Sequence[str]


@dataclass(frozen=True, eq=False, repr=False)
class RootsUnsettled(Event):
    """A kind's roots have changed for `changing_seconds`, so the kind is not sealed (again) yet.

    `is_served`: an earlier artifact of the kind is still served.
    """

    name: ClassVar[str] = "publish.unsettled"

    kind: str
    changing_seconds: float
    is_served: bool


@dataclass(frozen=True, eq=False, repr=False)
class SealStarted(Event):
    """Packing and sealing of a kind's roots begins."""

    name: ClassVar[str] = "seal.started"

    kind: str


@dataclass(frozen=True, eq=False, repr=False)
class RootPacked(Event):
    """A cache root was packed into its bundle; `skipped`: paths that were left out, and why."""

    name: ClassVar[str] = "seal.packed"

    root: str
    file_count: int
    content_bytes: int
    bundle_bytes: int
    skipped: Sequence[tuple[str, str]]


@dataclass(frozen=True, eq=False, repr=False)
class ServerAwaited(Event):
    """A publisher cannot reach the central server, because of `error`, and waits for it."""

    name: ClassVar[str] = "publish.waiting"

    error: MxArtifactsError
    seconds_left: float


@dataclass(frozen=True, eq=False, repr=False)
class WorkerPortChanged(Event):
    """A worker listens on `port`, because another process uses `wanted_port`."""

    name: ClassVar[str] = "worker.port_changed"

    wanted_port: int
    port: int


@dataclass(frozen=True, eq=False, repr=False)
class ArtifactDamaged(Event):
    """A source found that an artifact which it serves is damaged, as a target had reported.

    It serves the artifact no longer, and its record becomes STALE. `damage` names the chunk.
    """

    name: ClassVar[str] = "worker.artifact_damaged"

    artifact_id: str
    damage: str


@dataclass(frozen=True, eq=False, repr=False)
class PublishFailed(Event):
    """A followed kind cannot be sealed or announced, because of `error`.

    It is tried again when its roots change, or in the next interval if the error is retryable.
    `is_served`: an earlier artifact of the kind is still served.
    """

    name: ClassVar[str] = "publish.failed"

    kind: str
    error: MxArtifactsError
    is_served: bool


@dataclass(frozen=True, eq=False, repr=False)
class SeedFailed(Event):
    """A target cannot seed, because of `error`; its fetch continues."""

    name: ClassVar[str] = "seed.failed"

    error: MxArtifactsError


# --- fetching ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class DiscoveryWaiting(Event):
    """No source can be used yet, because of `error`; the target will try again."""

    name: ClassVar[str] = "discover.waiting"

    error: MxArtifactsError
    seconds_left: float


@dataclass(frozen=True, eq=False, repr=False)
class FetchWaiting(Event):
    """This fetch waits: another process of this node fetches the same into the same roots."""

    name: ClassVar[str] = "fetch.waiting"

    error: MxArtifactsError


@dataclass(frozen=True, eq=False, repr=False)
class TransferStarted(Event):
    """The tables are received and verified, and reading begins. One read carries one span."""

    name: ClassVar[str] = "transfer.started"

    total_bytes: int
    span_count: int


@dataclass(frozen=True, eq=False, repr=False)
class SpanReceived(Event):
    """A span was read and verified."""

    name: ClassVar[str] = "transfer.span"

    length_bytes: int


@dataclass(frozen=True, eq=False, repr=False)
class SourceFailed(Event):
    """A source failed with `error`; the missing spans are read from other sources, if any."""

    name: ClassVar[str] = "transfer.source_failed"

    endpoint: str
    error: MxArtifactsError


@dataclass(frozen=True, eq=False, repr=False)
class TransferFinished(Event):
    """Every span was received and verified."""

    name: ClassVar[str] = "transfer.finished"

    total_bytes: int
    span_count: int


@dataclass(frozen=True, eq=False, repr=False)
class FollowFailed(Event):
    """A followed kind could not be fetched again, because of `error`; it will be tried again."""

    name: ClassVar[str] = "follow.failed"

    kind: str
    error: MxArtifactsError


# --- installing ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class RootsLocked(Event):
    """An install holds the locks of its roots."""

    name: ClassVar[str] = "install.locked"

    roots: Sequence[str]


@dataclass(frozen=True, eq=False, repr=False)
class RootRecovered(Event):
    """An interrupted install of a root was recovered: it was taken back, or it was complete."""

    name: ClassVar[str] = "install.recovered"

    root: str
    taken_back: bool


@dataclass(frozen=True, eq=False, repr=False)
class RootStaged(Event):
    """All files of a root are staged beside it."""

    name: ClassVar[str] = "install.staged"

    root: str
    files: int


@dataclass(frozen=True, eq=False, repr=False)
class MovesJournaled(Event):
    """The moves into a root are in its journal; a crash from now on can be recovered."""

    name: ClassVar[str] = "install.journaled"

    root: str
    moves: int


@dataclass(frozen=True, eq=False, repr=False)
class EntryMoved(Event):
    """An entry was renamed into its root; `entry` is "" if the whole root was renamed."""

    name: ClassVar[str] = "install.moved"

    root: str
    entry: str


@dataclass(frozen=True, eq=False, repr=False)
class ReceiptWritten(Event):
    """The install is complete; its receipt is durable."""

    name: ClassVar[str] = "install.receipt"

    path: str


@dataclass(frozen=True, eq=False, repr=False)
class EntryRemoved(Event):
    """An uninstall removed an entry."""

    name: ClassVar[str] = "uninstall.removed"

    root: str
    entry: str


# --- groups --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class GroupJoined(Event):
    """This node joined a round of its group."""

    name: ClassVar[str] = "group.joined"

    group: str
    member_id: str
    round_id: str


@dataclass(frozen=True, eq=False, repr=False)
class GroupWaiting(Event):
    """Not all members of the group are ready; `reason` names the members that are not."""

    name: ClassVar[str] = "group.waiting"

    group: str
    reason: str


@dataclass(frozen=True, eq=False, repr=False)
class GroupCommitted(Event):
    """All members have staged; each now moves its entries into its roots."""

    name: ClassVar[str] = "group.commit"

    group: str


@dataclass(frozen=True, eq=False, repr=False)
class GroupDone(Event):
    """All members have installed."""

    name: ClassVar[str] = "group.done"

    group: str


# --- the central server --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class ServerStarted(Event):
    """The central server listens on `address` (host:port) and keeps records in `backend`."""

    name: ClassVar[str] = "server.started"

    address: str
    backend: str
    survives_restart: bool
    """Whether records outlive the server process."""
    shared: bool
    """Whether several servers may use the same records at once."""


@dataclass(frozen=True, eq=False, repr=False)
class SourcePublished(Event):
    """A worker published its record, for the first time or again."""

    name: ClassVar[str] = "server.published"

    mx_source_id: str
    worker_id: str


@dataclass(frozen=True, eq=False, repr=False)
class RecordsSwept(Event):
    """The reaper marked records of silent workers STALE, or deleted old STALE records."""

    name: ClassVar[str] = "server.swept"

    marked_stale: int
    deleted: int


@dataclass(frozen=True, eq=False, repr=False)
class BackendDown(Event):
    """The metadata backend cannot be reached; until it is back, the server answers UNAVAILABLE."""

    name: ClassVar[str] = "server.backend_down"

    error: MxArtifactsError


@dataclass(frozen=True, eq=False, repr=False)
class BackendUp(Event):
    """The metadata backend answers again."""

    name: ClassVar[str] = "server.backend_up"
