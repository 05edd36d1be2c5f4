"""ArtifactFetcher: discover, transfer, verify and install, in one object."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from mx_artifacts.artifacts.bundle_root import check_bundle_root
from mx_artifacts.artifacts.factories import transfer_of_kind
from mx_artifacts.artifacts.protocol import ArtifactSourceEndpoint
from mx_artifacts.artifacts.seeding.seeder import Seeder
from mx_artifacts.artifacts.source.source_worker import SourceWorker
from mx_artifacts.artifacts.target.fetch_values import FetcherSettings, FetchPlan, FetchResult
from mx_artifacts.artifacts.target.group_member import GroupMember, GroupWanted
from mx_artifacts.artifacts.target.incoming import not_wrapped
from mx_artifacts.artifacts.target.single_flight import turn_to_fetch
from mx_artifacts.artifacts.target.source_finder import SeenSources, SourceFinder
from mx_artifacts.artifacts.target.source_order import TargetLocality, ordering
from mx_artifacts.artifacts.target.source_supply import address_of
from mx_artifacts.artifacts.target.suitability import (
    ANY_SOURCE,
    RootObjection,
    SourceWanted,
    no_objection,
)
from mx_artifacts.artifacts.tarred import TarredP2PArtifactTransfer
from mx_artifacts.client.central import CentralClient
from mx_artifacts.compression import check_mode
from mx_artifacts.core.identity import SourceIdentity
from mx_artifacts.errors import InstallError, MxArtifactsError, TransferFailedError
from mx_artifacts.identity.identify import check_stated_roots
from mx_artifacts.install.base import ALONE, Agreement, InstallReport
from mx_artifacts.install.workspace.opening import check_target
from mx_artifacts.kinds.base import CacheKind
from mx_artifacts.observability.catalogue import DiscoveryWaiting, SeedFailed
from mx_artifacts.observability.events import EventSink, ignore_events
from mx_artifacts.runtime.clock import SYSTEM_CLOCK, Clock
from mx_artifacts.runtime.deadline import Deadline
from mx_artifacts.runtime.node_limits import node_limits_named
from mx_artifacts.runtime.process_end import HomeProcess
from mx_artifacts.transfer.artifact.fetch import fetch_artifact
from mx_artifacts.transfer.base import SourceAddress
from mx_artifacts.transfer.engine import TransferLimits
from mx_artifacts.transfer.timing import DEFAULT_TIMING, TransferTiming
from mx_artifacts.transport.base import Transport
from mx_artifacts.transport.registry import open_target_transport

RETRY_SECONDS = 1.0
"""Between two attempts at sources that were all lost; what verified is kept meanwhile."""


@dataclass(frozen=True)
class _Fetch:
    """What is fetched, and how."""

    identity: SourceIdentity
    transfer: TarredP2PArtifactTransfer
    replace: bool
    wanted: SourceWanted
    seen: dict[str, SeenSources] = field(default_factory=dict)


def _within(wanted: SourceWanted, wait_seconds: float) -> SourceWanted:
    return dataclasses.replace(wanted, wait_seconds=wait_seconds)


class ArtifactFetcher:
    """Fetches and installs caches. The client is the caller's; the transport is made on first use.

    Use it as a context manager, or `close` it. Not thread-safe.
    """

    def __init__(
        self,
        *,
        client: CentralClient,
        settings: FetcherSettings,
        transport_factory: Callable[[], Transport] | None = None,
        events: EventSink = ignore_events,
        clock: Clock = SYSTEM_CLOCK,
        timing: TransferTiming = DEFAULT_TIMING,
    ) -> None:
        """Make no call yet.

        `transport_factory` makes the transport; by default that which the settings name.

        Raises:
            ConfigurationError: zstd is required but not installed; or, with `seed`, no other
                machine could use the address to announce.
        """
        check_mode(settings.serving.compression)
        if settings.seed:
            settings.serving.check(client.address)
        self._client = client
        self._transport_factory = transport_factory or partial(
            open_target_transport, settings.serving.transport
        )
        self._transport: Transport | None = None
        self._home = HomeProcess()
        self._seeds = Seeder(self._open_worker, events)
        self._settings = settings
        self._events = events
        self._clock = clock
        self._timing = timing
        here = TargetLocality(topology=settings.serving.topology, levels=settings.topology_levels)
        self._finder = SourceFinder(
            client,
            ordering(settings.selector, random.Random(), here),  # noqa: S311 - spreads load
            settings.state_directory,
            clock,
            events,
            settings.query_timeout_seconds,
        )

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
            MetadataError: the central server does not answer within `wanted.wait_seconds`.
        """
        if kind is not None:
            check_stated_roots(kind, identity, roots or {})
        objection: RootObjection = no_objection
        if kind is not None and not wanted.allow_other_root:
            objection = self._transfer(kind, identity, roots).root_objection
        return self._finder.find(identity, wanted, objection)

    def newest_besides(
        self,
        known_ids: Collection[str],
        kind: CacheKind,
        identity: SourceIdentity,
        roots: Mapping[str, Path] | None = None,
        *,
        wanted: SourceWanted = ANY_SOURCE,
    ) -> ArtifactSourceEndpoint | None:
        """Look for something else than the artifacts `known_ids`; does not wait.

        See `SourceFinder.newest_besides`; the other arguments are those of `fetch_and_install`.
        """
        objection = self._transfer(kind, identity, roots).root_objection
        if wanted.allow_other_root:
            objection = no_objection
        return self._finder.newest_besides(known_ids, identity, wanted, objection)

    def wait_for_some(self, identities: Sequence[SourceIdentity], wait_seconds: float) -> None:
        """Wait until sources serve some of `identities`; see `SourceFinder.wait_for_some`."""
        self._finder.wait_for_some(identities, wait_seconds)

    def plan(
        self,
        kind: CacheKind,
        identity: SourceIdentity,
        roots: Mapping[str, Path] | None = None,
        *,
        wanted: SourceWanted = ANY_SOURCE,
        replace: bool = False,
    ) -> FetchPlan:
        """Return what `fetch_and_install` with the same arguments would do; change nothing.

        Raises:
            UnusablePlaceError: a root or the bundle root cannot be written to. For stated roots and
                the bundle root, this is checked before a source is looked for.
            NoSpaceError: the first source's artifact does not fit beside the roots.
            NoSourceError, IncompatibleSourceError, MetadataError: no source was found.
        """
        plan = self._plan(kind, identity, roots, wanted=wanted, replace=replace)
        if plan.already is None:
            self._transfer(kind, identity, roots).check_space(plan.sources[0].total_size)
        return plan

    def _plan(
        self,
        kind: CacheKind,
        identity: SourceIdentity,
        roots: Mapping[str, Path] | None,
        *,
        wanted: SourceWanted,
        replace: bool,
    ) -> FetchPlan:
        """As `plan`, but leave the space to the install, which knows the size for certain."""
        check_bundle_root(self._settings.serving.bundle_root)
        for root in (roots or {}).values():
            check_target(root)
        sources = tuple(self.discover(identity, wanted, kind=kind, roots=roots))
        transfer = self._transfer(kind, identity, roots)
        already = None if replace else transfer.find_installed(sources[0].artifact_id)
        if already is None:
            transfer.check_places()
        return FetchPlan(sources, already)

    def count_existing_entries(
        self, kind: CacheKind, identity: SourceIdentity, roots: Mapping[str, Path] | None = None
    ) -> dict[Path, int]:
        """Return how many entries each root holds now.

        Entries that are also in the artifact are kept, or with `replace` replaced. Which entries
        these are is known only after the transfer.
        """
        return self._transfer(kind, identity, roots).count_existing_entries()

    @node_limits_named()
    def fetch_and_install(
        self,
        kind: CacheKind,
        identity: SourceIdentity,
        roots: Mapping[str, Path] | None = None,
        *,
        wanted: SourceWanted = ANY_SOURCE,
        replace: bool = False,
        group: GroupWanted | None = None,
    ) -> FetchResult:
        """Fetch from the first source that delivers and install into this node's roots.

        `roots` overrides the kind's roots by name ("" is the primary root); the others are where
        the engine of the identity looks. Existing entries are kept, unless `replace`. Without
        `replace`, nothing is transferred if the artifact is already installed and its files have
        not changed. While another process of this node fetches it into the same roots, this call
        waits.

        With a `group`, the calls of all members install, or none does (docs/groups.md). Members may
        install different artifacts. The group is joined before a source is looked for.

        Raises:
            UnusablePlaceError, NoSourceError, IncompatibleSourceError, MetadataError: as `plan`.
            TransferFailedError: every source failed.
            InstallError, BundleError: the roots are as they were.
            GroupFailedError: one of these errors occurred at a member; the roots are as they were.
            GroupInDoubtError: the roots are as they were, but other members may have installed.
            NodeLimitError: this process may have no more threads, files or memory.
            ConfigurationError, RemoteError: the group cannot be joined; nothing was fetched.
        """
        plan = partial(self._plan, kind, identity, roots, replace=replace)
        fetch = _Fetch(identity, self._transfer(kind, identity, roots), replace, wanted)
        if group is None or group.size == 1:
            return self._fetch_patiently(fetch, plan, ALONE)
        with GroupMember(
            self._client,
            group,
            kind_name=kind.name,
            join_seconds=wanted.wait_seconds,
            clock=self._clock,
            events=self._events,
        ) as member:
            return self._fetch_patiently(fetch, plan, member)

    def _fetch_patiently(
        self, fetch: _Fetch, plan: Callable[..., FetchPlan], agreement: Agreement
    ) -> FetchResult:
        """Fetch; where all sources that are listed are lost, wait for others, as for the first."""
        wait = Deadline(fetch.wanted.wait_seconds, self._clock)
        while True:
            now = dataclasses.replace(fetch, wanted=_within(fetch.wanted, wait.remaining()))
            try:
                return self._fetch(now, plan(wanted=now.wanted), agreement)
            except TransferFailedError as error:
                if not error.retryable or wait.passed:
                    raise
                self._events(DiscoveryWaiting(error, wait.remaining()))
                self._clock.sleep(min(RETRY_SECONDS, wait.remaining()))

    def _fetch(self, fetch: _Fetch, plan: FetchPlan, agreement: Agreement) -> FetchResult:
        first, transfer = plan.sources[0], fetch.transfer
        if plan.already is not None:
            return self._agreed(fetch, plan.sources, plan.already, agreement)
        if fetch.replace:
            return self._transfer_and_install(fetch, plan.sources, agreement)
        with turn_to_fetch(
            self._settings.serving.bundle_root,
            first.artifact_id,
            (root.target_root for root in transfer.roots),
            timeout_seconds=self._settings.lock_timeout_seconds,
            clock=self._clock,
            events=self._events,
        ):
            already = transfer.find_installed(first.artifact_id)  # by whoever had its turn before
            if already is not None:
                return self._agreed(fetch, plan.sources, already, agreement)
            return self._transfer_and_install(fetch, plan.sources, agreement)

    def _agreed(
        self,
        fetch: _Fetch,
        sources: Sequence[ArtifactSourceEndpoint],
        already: InstallReport,
        agreement: Agreement,
    ) -> FetchResult:
        """Return what is here already, when the others have theirs too, and it is still here."""
        source, transfer = sources[0], fetch.transfer
        agreement.before_commit(source.artifact_id)
        if agreement is not ALONE and transfer.find_installed(source.artifact_id) is None:
            raise InstallError(f"entries in {already.receipt_path} were changed meanwhile")
        agreement.before_receipt(already.roots)
        total_bytes = self._seed_only(fetch, sources) if self._settings.seed else 0
        return FetchResult(transfer.name, source, total_bytes, 0.0, 0.0, already)

    def _seed_only(self, fetch: _Fetch, sources: Sequence[ArtifactSourceEndpoint]) -> int:
        """Receive an installed artifact again, to serve it; its files were adapted to this node.

        Return the number of received bytes. The install stays. If this fails, the event seed.failed
        reports it.
        """
        same = [each for each in sources if each.artifact_id == sources[0].artifact_id]
        try:
            received = fetch_artifact(
                list(map(address_of, same)),
                same[0].artifact_id,
                self._connected(),
                self._seeds.receiver(fetch.identity, None, same[0]),
                self._limits(fetch),
                find_more=partial(self._find_others, fetch, same[0].artifact_id),
                events=self._events,
            )
        except MxArtifactsError as error:
            self._seeds.end(same[0].mx_source_id)  # of which it has a part only
            self._events(SeedFailed(error))
            return 0
        return received.transferred_bytes

    def _transfer_and_install(
        self, fetch: _Fetch, sources: Sequence[ArtifactSourceEndpoint], agreement: Agreement
    ) -> FetchResult:
        transfer = fetch.transfer
        started = self._clock.monotonic()
        staged = transfer.transfer_from_any(
            sources,
            self._connected(),
            self._limits(fetch),
            partial(self._find_others, fetch),
            partial(self._seeds.receiver, fetch.identity) if self._settings.seed else not_wrapped,
        )
        received = self._clock.monotonic()
        report = transfer.install(staged, replace=fetch.replace, agreement=agreement)
        return FetchResult(
            kind=transfer.name,
            source=staged.source,
            total_bytes=staged.transferred_bytes,
            transfer_seconds=received - started,
            install_seconds=self._clock.monotonic() - received,
            report=report,
            delivered=staged.delivered,
            left_behind=staged.left_behind,
            transports=staged.transports,
        )

    def _limits(self, fetch: _Fetch) -> TransferLimits:
        settings = self._settings
        return TransferLimits(
            settings.timeout_seconds,
            settings.serving.slots,
            source_wait_seconds=fetch.wanted.wait_seconds,
            serves_on=settings.seed,
            max_bytes_per_second=settings.serving.max_bytes_per_second,
            compression=settings.serving.compression,
            timing=self._timing,
        )

    def _find_others(self, fetch: _Fetch, artifact_id: str) -> list[SourceAddress]:
        """Return the sources that serve an artifact now, without this process."""
        seen = fetch.seen.setdefault(artifact_id, {})
        found = self._finder.find_others(fetch.identity, artifact_id, seen)
        return [address for address in found if address.endpoint != self._seeds.endpoint]

    def _transfer(
        self, kind: CacheKind, identity: SourceIdentity, roots: Mapping[str, Path] | None
    ) -> TarredP2PArtifactTransfer:
        return transfer_of_kind(
            kind,
            bundle_root=self._settings.serving.bundle_root,
            roots=roots,
            framework=identity.backend_framework,
            lock_timeout_seconds=self._settings.lock_timeout_seconds,
            durable=self._settings.durable,
            events=self._events,
        )

    def _open_worker(self) -> SourceWorker:
        transport = self._connected()
        return SourceWorker(self._client, transport, self._settings.serving, events=self._events)

    def _connected(self) -> Transport:
        if self._transport is None:
            self._transport = self._transport_factory()
        return self._transport

    @property
    def is_seeding(self) -> bool:
        """Whether something that was fetched is served to others now."""
        return self._seeds.is_serving

    def close(self) -> None:
        """Serve seeds no more, let their readers finish, close the transport. Idempotent.

        In a child of fork nothing happens: seeds and transport are the parent's.
        """
        if not self._home.is_this:
            return
        self._seeds.close()
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()

    def __enter__(self) -> ArtifactFetcher:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
