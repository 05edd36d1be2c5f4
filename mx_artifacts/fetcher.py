"""ArtifactFetcher: discover, transfer, verify and install, in one object."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from mx_artifacts.artifacts.bundle_root import check_bundle_root
from mx_artifacts.artifacts.discover import RootObjection, candidate_sources, no_objection
from mx_artifacts.artifacts.factories import transfer_of_kind
from mx_artifacts.artifacts.group_member import GroupMember, GroupWanted
from mx_artifacts.artifacts.protocol import ArtifactSourceEndpoint
from mx_artifacts.artifacts.tarred import DEFAULT_LOCK_TIMEOUT_SECONDS, TarredP2PArtifactTransfer
from mx_artifacts.artifacts.turn import turn_to_fetch
from mx_artifacts.client.central import CentralClient
from mx_artifacts.clock import SYSTEM_CLOCK, Clock
from mx_artifacts.core.identity import SourceIdentity
from mx_artifacts.errors import DiscoveryError, InstallError, MetadataError, NoSourceError
from mx_artifacts.install.base import ALONE, Agreement, InstallReport
from mx_artifacts.install.quarantine import Quarantine
from mx_artifacts.install.workspace import check_target
from mx_artifacts.kinds.base import CacheKind
from mx_artifacts.kinds.identity import check_stated_roots
from mx_artifacts.observability.events import Event, EventSink, drop
from mx_artifacts.settings import BUNDLE_ROOT, STATE_DIR
from mx_artifacts.transfer.select import ordering
from mx_artifacts.transport.base import Transport
from mx_artifacts.transport.registry import open_transport

MAX_SOURCES_TRIED = 32
"""Sources asked in one fetch; each has a time budget of its own."""
_POLL_SECONDS = (0.25, 0.5, 1.0, 2.0)
_SOME_POLL_SECONDS = 1.0
"""Above the time in which a publisher of several kinds announces one after the other."""


@dataclass(frozen=True)
class FetcherSettings:
    """How a fetcher fetches.

    Attributes:
        bundle_root: where processes of this node take turns; default: MX_ARTIFACT_BUNDLE_ROOT.
        timeout_seconds: budget for receiving from one source.
        max_inflight_chunks: chunks that are read at once, each in a registered buffer.
        lock_timeout_seconds: how long to wait for another installer of the same root, both
            before the transfer and before the install.
        selector: "random" or "rendezvous_hash".
        state_directory: where this node's quarantine is.
    """

    bundle_root: Path = field(default_factory=BUNDLE_ROOT.read)
    timeout_seconds: float = 300.0
    max_inflight_chunks: int = 4
    lock_timeout_seconds: float = DEFAULT_LOCK_TIMEOUT_SECONDS
    selector: str = "random"
    state_directory: Path = field(default_factory=STATE_DIR.read)


@dataclass(frozen=True)
class SourceWanted:
    """Which of the compatible sources will do, and how long to wait for one [seconds].

    `accelerator` is the family of the device that the cache is for ("cuda"); empty: unknown.
    `allow_other_root` takes sources too whose cache root differs where it must not.
    """

    worker_rank: int | None = None
    node_rank: int | None = None
    artifact_id: str = ""
    accelerator: str = ""
    wait_seconds: float = 0.0
    allow_other_root: bool = False


ANY_SOURCE = SourceWanted()


@dataclass(frozen=True)
class FetchPlan:
    """What a fetch would do: the sources in the order in which they would be tried.

    `already` is set when the first source's artifact is installed as it was, so that nothing
    would be transferred; it is the report of an install that changes nothing.
    """

    sources: tuple[ArtifactSourceEndpoint, ...]
    already: InstallReport | None


@dataclass(frozen=True)
class Fetched:
    """What was fetched from whom, and what was installed.

    `total_bytes` were transferred: none when all of it was here already.
    """

    kind: str
    source: ArtifactSourceEndpoint
    total_bytes: int
    transfer_seconds: float
    install_seconds: float
    report: InstallReport


class ArtifactFetcher:
    """Fetches and installs caches. The client is the caller's; the transport is made on first use.

    Use it as a context manager, or `close` it. Not thread-safe.
    """

    def __init__(
        self,
        *,
        client: CentralClient,
        settings: FetcherSettings,
        transport_factory: Callable[[], Transport] = open_transport,
        events: EventSink = drop,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._client = client
        self._transport_factory = transport_factory
        self._transport: Transport | None = None
        self._settings = settings
        self._events = events
        self._clock = clock
        self._order = ordering(settings.selector, random.Random())  # noqa: S311 - spreads load

    def discover(
        self,
        identity: SourceIdentity,
        wanted: SourceWanted = ANY_SOURCE,
        *,
        kind: CacheKind | None = None,
        roots: Mapping[str, Path] | None = None,
    ) -> list[ArtifactSourceEndpoint]:
        """Return the compatible sources in the order in which they would be tried.

        With `kind`, those whose cache cannot be used in `roots` (as in `fetch_and_install`) are
        left out, unless `wanted.allow_other_root`.

        Raises:
            NoSourceError, IncompatibleSourceError: none, after `wanted.wait_seconds`.
            MetadataError: the central server does not answer, likewise.
        """
        if kind is not None:
            check_stated_roots(kind, identity, roots or {})
        objection: RootObjection = no_objection
        if kind is not None and not wanted.allow_other_root:
            objection = self._transfer(kind, roots).root_objection
        deadline = self._clock.monotonic() + wanted.wait_seconds
        attempt = 0
        while True:
            try:
                return self._candidates(identity, wanted, objection)
            except (DiscoveryError, MetadataError) as error:
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    raise
                self._events(Event("discover.waiting", {"seconds_left": left, "error": error}))
                pause = _POLL_SECONDS[min(attempt, len(_POLL_SECONDS) - 1)]
                self._clock.sleep(min(pause, left))
                attempt += 1

    def wait_for_some(self, identities: Sequence[SourceIdentity], wait_seconds: float) -> None:
        """Return when sources serve some of `identities` and another look finds no more of them.

        For a caller that does not know which kinds will be served, and so cannot wait for each.
        Returns also when `wait_seconds` are over; never raises for what is not there.
        """
        deadline = self._clock.monotonic() + wait_seconds
        found: set[SourceIdentity] = set()
        while True:
            new = {each for each in identities if each not in found and self._has_source(each)}
            left = deadline - self._clock.monotonic()
            if left <= 0 or (found and not new) or len(found | new) == len(identities):
                return
            found |= new
            if not found:
                nobody = NoSourceError("no source serves any of the kinds yet")
                self._events(Event("discover.waiting", {"seconds_left": left, "error": nobody}))
            self._clock.sleep(min(_SOME_POLL_SECONDS, left))

    def _has_source(self, identity: SourceIdentity) -> bool:
        try:
            return bool(self._candidates(identity, ANY_SOURCE))
        except (DiscoveryError, MetadataError):
            return False

    def _candidates(
        self,
        identity: SourceIdentity,
        wanted: SourceWanted,
        root_objection: RootObjection = no_objection,
    ) -> list[ArtifactSourceEndpoint]:
        found = candidate_sources(
            self._client,
            identity,
            worker_rank=wanted.worker_rank,
            node_rank=wanted.node_rank,
            artifact_id=wanted.artifact_id,
            accelerator=wanted.accelerator,
            order=self._order,
            root_objection=root_objection,
            # Read anew, so that a waiting fetch learns of one.
            refused=Quarantine(self._settings.state_directory).refusals(),
        )
        return [source for source, _ in zip(found, range(MAX_SOURCES_TRIED), strict=False)]

    def plan(
        self,
        kind: CacheKind,
        identity: SourceIdentity,
        roots: Mapping[str, Path] | None = None,
        *,
        wanted: SourceWanted = ANY_SOURCE,
        replace: bool = False,
    ) -> FetchPlan:
        """Say what `fetch_and_install` with the same arguments would do; changes nothing.

        Raises:
            UnusablePlaceError: a root or the bundle root cannot be written to. For roots that
                are stated, and the bundle root, before any source is looked for or waited for.
            NoSourceError, IncompatibleSourceError, MetadataError: nobody to ask.
        """
        check_bundle_root(self._settings.bundle_root)
        for root in (roots or {}).values():
            check_target(root)
        sources = tuple(self.discover(identity, wanted, kind=kind, roots=roots))
        transfer = self._transfer(kind, roots)
        already = None if replace else transfer.find_installed(sources[0].artifact_id)
        if already is None:
            transfer.check_places()
        return FetchPlan(sources, already)

    def standing_entries(
        self, kind: CacheKind, roots: Mapping[str, Path] | None = None
    ) -> dict[Path, int]:
        """Return how many entries each root holds now.

        Those that an artifact has too are kept, or with `replace` replaced; which they are nobody
        knows before the artifact is here.
        """
        return self._transfer(kind, roots).standing_entries()

    def fetch_and_install(
        self,
        kind: CacheKind,
        identity: SourceIdentity,
        roots: Mapping[str, Path] | None = None,
        *,
        wanted: SourceWanted = ANY_SOURCE,
        replace: bool = False,
        group: GroupWanted | None = None,
    ) -> Fetched:
        """Fetch from the first source that delivers and install into this node's roots.

        `roots` overrides the kind's roots by name ("" is the primary root). Entries that the
        roots already hold are kept, unless `replace`. Without `replace` nothing is transferred
        when the artifact is installed here, and its files are as they were installed; and while
        another process of this node fetches it into these roots, this one waits.

        With a `group`, all of its members' calls install or none does (docs/groups.md); the group's
        artifacts may differ from node to node. It is joined before a source is looked for.

        Raises:
            UnusablePlaceError, NoSourceError, IncompatibleSourceError, MetadataError: as `plan`.
            TransferFailedError: every source failed.
            InstallError, BundleError: the roots are as they were.
            GroupFailedError: any of these, at whichever member; the roots are as they were.
            GroupInDoubtError: likewise, but others may have installed.
            ConfigurationError, RemoteError: the group cannot be joined; nothing was asked for.
        """
        plan = partial(self.plan, kind, identity, roots, wanted=wanted, replace=replace)
        if group is None or group.size == 1:
            return self._fetch(plan(), self._transfer(kind, roots), replace, ALONE)
        with GroupMember(
            self._client,
            group,
            kind_name=kind.name,
            join_seconds=wanted.wait_seconds,
            clock=self._clock,
            events=self._events,
        ) as member:
            return self._fetch(plan(), self._transfer(kind, roots), replace, member)

    def _fetch(
        self,
        plan: FetchPlan,
        transfer: TarredP2PArtifactTransfer,
        replace: bool,
        agreement: Agreement,
    ) -> Fetched:
        first = plan.sources[0]
        if plan.already is not None:
            return self._agreed(transfer, first, plan.already, agreement)
        if replace:
            return self._transfer_and_install(transfer, plan.sources, True, agreement)
        with turn_to_fetch(
            self._settings.bundle_root,
            first.artifact_id,
            (root.target_root for root in transfer.roots),
            timeout_seconds=self._settings.lock_timeout_seconds,
            clock=self._clock,
            events=self._events,
        ):
            already = transfer.find_installed(first.artifact_id)  # by whoever had its turn before
            if already is not None:
                return self._agreed(transfer, first, already, agreement)
            return self._transfer_and_install(transfer, plan.sources, False, agreement)

    def _agreed(
        self,
        transfer: TarredP2PArtifactTransfer,
        source: ArtifactSourceEndpoint,
        already: InstallReport,
        agreement: Agreement,
    ) -> Fetched:
        """Return what is here already, when the others have theirs too, and it is still here."""
        agreement.before_commit(source.artifact_id)
        if agreement is not ALONE and transfer.find_installed(source.artifact_id) is None:
            raise InstallError(f"what {already.receipt_path} lists was changed meanwhile")
        agreement.before_receipt(already.roots)
        return Fetched(transfer.name, source, 0, 0.0, 0.0, already)

    def _transfer_and_install(
        self,
        transfer: TarredP2PArtifactTransfer,
        sources: Sequence[ArtifactSourceEndpoint],
        replace: bool,
        agreement: Agreement,
    ) -> Fetched:
        settings = self._settings
        started = self._clock.monotonic()
        staged = transfer.transfer_from_any(
            sources,
            self._connected(),
            timeout=settings.timeout_seconds,
            max_inflight_chunks=settings.max_inflight_chunks,
        )
        received = self._clock.monotonic()
        report = transfer.install(staged, replace=replace, agreement=agreement)
        return Fetched(
            kind=transfer.name,
            source=staged.source,
            total_bytes=staged.manifest.total_size,
            transfer_seconds=received - started,
            install_seconds=self._clock.monotonic() - received,
            report=report,
        )

    def _transfer(
        self, kind: CacheKind, roots: Mapping[str, Path] | None
    ) -> TarredP2PArtifactTransfer:
        return transfer_of_kind(
            kind,
            bundle_root=self._settings.bundle_root,
            roots=roots,
            lock_timeout_seconds=self._settings.lock_timeout_seconds,
            events=self._events,
        )

    def _connected(self) -> Transport:
        if self._transport is None:
            self._transport = self._transport_factory()
        return self._transport

    def close(self) -> None:
        """Close the transport. Idempotent."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()

    def __enter__(self) -> ArtifactFetcher:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
