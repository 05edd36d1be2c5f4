"""Finds sources to fetch from, and waits for them if there are none yet."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mx_artifacts.artifacts.labels import ARTIFACT_LABEL
from mx_artifacts.artifacts.protocol import ArtifactSourceEndpoint
from mx_artifacts.artifacts.target.discover import (
    OrderCandidates,
    candidate_sources,
)
from mx_artifacts.artifacts.target.explain import KnownIdentities
from mx_artifacts.artifacts.target.record_reader import RecordReader
from mx_artifacts.artifacts.target.suitability import (
    ANY_SOURCE,
    RootObjection,
    SourceWanted,
    Target,
    no_objection,
)
from mx_artifacts.client.central import CentralClient
from mx_artifacts.core.identity import SourceIdentity
from mx_artifacts.core.sources import SourceQuery, SourceRef, SourceStatus, StoredWorker
from mx_artifacts.errors import DiscoveryError, MetadataError, NoSourceError
from mx_artifacts.install.quarantine import Quarantine
from mx_artifacts.observability.catalogue import DiscoveryWaiting
from mx_artifacts.observability.events import EventSink
from mx_artifacts.runtime.clock import Clock
from mx_artifacts.runtime.deadline import Deadline
from mx_artifacts.transfer.base import SourceAddress

MAX_SOURCES_TRIED = 32
"""Sources asked in one fetch; each has a time budget of its own."""
_POLL_SECONDS = (0.25, 0.5, 1.0, 2.0)
_SOME_POLL_SECONDS = 1.0
"""Above the time in which a publisher of several kinds announces one after the other."""


SeenSources = dict[tuple[str, str, str], SourceAddress | None]
"""By source id, worker id and artifact label: where it serves the artifact, or None."""


_SERVING = (SourceStatus.READY, SourceStatus.INITIALIZING)
"""Statuses of a source that may be read from: one that initialises may be receiving still."""


def _address(stored: StoredWorker, artifact_id: str) -> SourceAddress | None:
    if stored.record.artifact is None or stored.record.artifact.artifact_id != artifact_id:
        return None
    return SourceAddress(stored.record.worker_grpc_endpoint, stored.mx_source_id)


@dataclass(frozen=True)
class SourceFinder:
    """Asks the central server for sources.

    Attributes:
        state_directory: where this node's quarantine is.
        query_timeout_seconds: after which one look asks for no further record; None: no bound.
        known: what it has read of identities while it waited.
    """

    client: CentralClient
    order: OrderCandidates
    state_directory: Path
    clock: Clock
    events: EventSink
    query_timeout_seconds: float | None = None
    known: KnownIdentities = field(default_factory=dict)

    def find(
        self,
        identity: SourceIdentity,
        wanted: SourceWanted = ANY_SOURCE,
        root_objection: RootObjection = no_objection,
    ) -> list[ArtifactSourceEndpoint]:
        """Return the compatible sources in the order in which they would be tried.

        Raises:
            NoSourceError, IncompatibleSourceError: none, after `wanted.wait_seconds`.
            MetadataError: the central server does not answer within `wanted.wait_seconds`.
        """
        deadline = self.clock.monotonic() + wanted.wait_seconds
        attempt = 0
        while True:
            try:
                return self._candidates(identity, wanted, root_objection)
            except (DiscoveryError, MetadataError) as error:
                left = deadline - self.clock.monotonic()
                if left <= 0:
                    raise
                self.events(DiscoveryWaiting(error, left))
                pause = _POLL_SECONDS[min(attempt, len(_POLL_SECONDS) - 1)]
                self.clock.sleep(min(pause, left))
                attempt += 1

    def find_others(
        self, identity: SourceIdentity, artifact_id: str, seen: SeenSources
    ) -> list[SourceAddress]:
        """Return the sources that serve this artifact now, including those that still receive it.

        It looks at a part of them: half are the first ones in the order of candidates, the others
        are chosen at random, so that useless first ones do not hide the others. A record is read
        once: `seen` keeps its content between calls for one artifact. A record that cannot be read,
        or that is stale, is skipped until the next call.

        Raises:
            MxArtifactsError: the central server does not answer.
        """
        refs = {
            (ref.mx_source_id, ref.worker_id, ref.topology.get(ARTIFACT_LABEL, "")): ref
            for status in _SERVING
            for ref in self.client.list_sources(SourceQuery(status=status), identity)
            if ref.topology.get(ARTIFACT_LABEL, artifact_id) == artifact_id
        }
        records = RecordReader(self.client)
        found = []
        for ref in self._some(list(refs.values())):
            key = ref.mx_source_id, ref.worker_id, ref.topology.get(ARTIFACT_LABEL, "")
            if key not in seen:
                stored = records.read(ref)
                if stored is None or stored.record.status not in _SERVING:
                    continue
                seen[key] = _address(stored, artifact_id)
            found.append(seen[key])
        return [address for address in found if address is not None]

    def _some(self, refs: Sequence[SourceRef]) -> list[SourceRef]:
        ordered = list(self.order(refs))
        first, rest = ordered[: MAX_SOURCES_TRIED // 2], ordered[MAX_SOURCES_TRIED // 2 :]
        return first + random.sample(rest, min(len(rest), MAX_SOURCES_TRIED - len(first)))

    def wait_for_some(self, identities: Sequence[SourceIdentity], wait_seconds: float) -> None:
        """Return when sources serve some of `identities` and another look finds no more of them.

        For a caller that does not know which kinds will be served, and so cannot wait for each.
        Returns also when `wait_seconds` are over; never raises for what is not there.
        """
        deadline = self.clock.monotonic() + wait_seconds
        found: set[SourceIdentity] = set()
        while True:
            new = {each for each in identities if each not in found and self._has_source(each)}
            left = deadline - self.clock.monotonic()
            if left <= 0 or (found and not new) or len(found | new) == len(identities):
                return
            found |= new
            if not found:
                nobody = NoSourceError("no source serves any of the kinds yet")
                self.events(DiscoveryWaiting(nobody, left))
            self.clock.sleep(min(_SOME_POLL_SECONDS, left))

    def newest_besides(
        self,
        known_ids: Collection[str],
        identity: SourceIdentity,
        wanted: SourceWanted = ANY_SOURCE,
        root_objection: RootObjection = no_objection,
    ) -> ArtifactSourceEndpoint | None:
        """Return the compatible source of a new artifact that has the latest heartbeat, or None.

        Artifacts in `known_ids` are not new. For sources that label their artifact, one call is
        enough to find that.

        Raises:
            IncompatibleSourceError: there are new artifacts, but none fits.
            MetadataError: the central server does not answer.
        """

        def new_ones(refs: Sequence[SourceRef]) -> list[SourceRef]:
            return [ref for ref in refs if ref.topology.get(ARTIFACT_LABEL) not in known_ids]

        query = SourceQuery(status=SourceStatus.READY, worker_rank=wanted.worker_rank)
        if not new_ones(self.client.list_sources(query, identity)):
            return None
        try:
            found = self._candidates(identity, wanted, root_objection, new_ones)
        except NoSourceError:  # it went away meanwhile
            return None
        return next((source for source in found if source.artifact_id not in known_ids), None)

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
        order: OrderCandidates | None = None,
    ) -> list[ArtifactSourceEndpoint]:
        # The quarantine is read anew, so that a waiting fetch learns of an artifact in it.
        refused = Quarantine(self.state_directory).refusals()
        limit = self.query_timeout_seconds
        found = candidate_sources(
            self.client,
            Target(identity, wanted, refused, root_objection),
            order=order or self.order,
            known=self.known,
            deadline=None if limit is None else Deadline(limit, self.clock),
        )
        return [source for source, _ in zip(found, range(MAX_SOURCES_TRIED), strict=False)]
