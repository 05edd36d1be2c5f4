"""A fetcher and a publisher that a test scripts, and a request to stop after so many looks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mx_artifacts.artifacts.protocol import ArtifactSourceEndpoint
from mx_artifacts.artifacts.target.fetch_values import FetchPlan, FetchResult
from mx_artifacts.artifacts.target.group_member import GroupWanted
from mx_artifacts.artifacts.target.suitability import ANY_SOURCE, SourceWanted
from mx_artifacts.core.identity import SourceIdentity, compute_mx_source_id
from mx_artifacts.core.sources import (
    ArtifactSummary,
    SourceQuery,
    SourceRef,
    SourceStatus,
    StoredWorker,
    WorkerRecord,
)
from mx_artifacts.errors import MxArtifactsError, NoSourceError
from mx_artifacts.identity.identify import ProbedIdentity
from mx_artifacts.install.base import InstallReport
from mx_artifacts.kinds.base import CacheKind
from mx_artifacts.publisher import PublishResult
from mx_artifacts.workflows.selected_kind import SelectedKind

REPORT = InstallReport(Path("/receipt.json"), ())


def probed(
    selected: SelectedKind, accelerator: str = "cuda", unchecked: tuple[str, ...] = ()
) -> ProbedIdentity:
    """Return an identity of the kind, without looking at this node."""
    identity = SourceIdentity(mx_source_type=selected.kind.source_type, model_name="m")
    return ProbedIdentity(identity, {}, accelerator, unchecked)


def endpoint(artifact_id: str) -> ArtifactSourceEndpoint:
    """Return a source that serves an artifact."""
    return ArtifactSourceEndpoint("source", "worker", 0, "host:1", artifact_id, 7)


class Looks:
    """A request to stop that is made after so many looks; `between` is called before each."""

    def __init__(self, count: int, between: Callable[[], object] = lambda: None) -> None:
        self._left = count
        self._between = between

    def wait(self, timeout_seconds: float | None = None) -> bool:
        self._left -= 1
        if self._left >= 0:
            self._between()
        return self._left < 0

    def run(self, work: Callable[[], object]) -> None:
        work()


@dataclass
class FakeFetcher:
    """Installs what `sources` serve, by kind: an artifact id, or the error that it fails with."""

    sources: dict[str, str | MxArtifactsError] = field(default_factory=dict)
    fetched: list[tuple[str, SourceWanted]] = field(default_factory=list)
    groups: list[GroupWanted | None] = field(default_factory=list)
    waited: list[tuple[int, float]] = field(default_factory=list)
    installed_already: bool = False

    def _serving(self, kind: CacheKind) -> ArtifactSourceEndpoint:
        serving = self.sources.get(kind.name, NoSourceError("no source"))
        if isinstance(serving, MxArtifactsError):
            raise serving
        return endpoint(serving)

    def wait_for_some(self, identities: Sequence[SourceIdentity], wait_seconds: float) -> None:
        self.waited.append((len(identities), wait_seconds))

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
        self.fetched.append((kind.name, wanted))
        self.groups.append(group)
        return FetchResult(kind.name, self._serving(kind), 7, 0.0, 0.0, REPORT)

    def plan(
        self,
        kind: CacheKind,
        identity: SourceIdentity,
        roots: Mapping[str, Path] | None = None,
        *,
        wanted: SourceWanted = ANY_SOURCE,
        replace: bool = False,
    ) -> FetchPlan:
        return FetchPlan((self._serving(kind),), REPORT if self.installed_already else None)

    def count_existing_entries(self, *_: object) -> dict[Path, int]:
        return {Path("/root"): 3}

    def newest_besides(
        self,
        known_ids: Collection[str],
        kind: CacheKind,
        identity: SourceIdentity,
        roots: Mapping[str, Path] | None = None,
        *,
        wanted: SourceWanted = ANY_SOURCE,
    ) -> ArtifactSourceEndpoint | None:
        try:
            serving = self._serving(kind)
        except NoSourceError:
            return None
        return None if serving.artifact_id in known_ids else serving


@dataclass
class FakePublisher:
    """Publishes artifact after artifact, or fails with `errors` by kind."""

    errors: dict[str, MxArtifactsError] = field(default_factory=dict)
    calls: list[tuple[str, str, int]] = field(default_factory=list)
    changes: bool = True
    _count: int = 0

    def publish(
        self,
        kind: CacheKind,
        identity: SourceIdentity,
        roots: Mapping[str, Path] | None = None,
        *,
        accelerator: str = "",
        also: Sequence[SourceIdentity] = (),
        require_ranks: int | None = None,
    ) -> PublishResult:
        self.calls.append((kind.name, accelerator, len(also)))
        self._fail(kind.name)
        return PublishResult(kind.name, "source", "worker", self._artifact_id(), "host:1", 7, ())

    def republish(self, published: PublishResult) -> PublishResult:
        self._fail(published.kind)
        if not self.changes:
            return published
        return replace(published, artifact_id=self._artifact_id())

    def _artifact_id(self) -> str:
        self._count += 1
        return f"artifact-{self._count}"

    def _fail(self, kind_name: str) -> None:
        if kind_name in self.errors:
            raise self.errors[kind_name]


def stored(
    identity: SourceIdentity,
    worker_id: str,
    *,
    status: SourceStatus = SourceStatus.READY,
    artifact_id: str = "a",
    accelerator: str = "cuda",
    topology: Mapping[str, str] | None = None,
) -> StoredWorker:
    """Return the record of a worker; without an artifact where its id is empty."""
    record = WorkerRecord(
        status=status,
        artifact=ArtifactSummary(artifact_id, 1, 1, 1) if artifact_id else None,
        worker_grpc_endpoint=f"{worker_id}:1",
        accelerator=accelerator,
        topology=dict(topology or {}),
    )
    return StoredWorker(compute_mx_source_id(identity), worker_id, identity, record)


@dataclass
class FakeCentral:
    """A central server that knows these records; workers in `gone` are listed and gone."""

    records: list[StoredWorker]
    gone: set[str] = field(default_factory=set)
    address: str = "central:1"

    def list_sources(self, query: SourceQuery) -> list[SourceRef]:
        refs = [
            SourceRef(
                each.mx_source_id,
                each.worker_id,
                each.identity.model_name,
                0,
                accelerator=each.record.accelerator,
            )
            for each in self.records
            if query.mx_source_id in (None, each.mx_source_id)
            and query.status in (None, each.record.status)
        ]
        return refs[: query.limit]

    def get_metadata(self, mx_source_id: str, worker_id: str) -> StoredWorker | None:
        for each in self.records:
            if (each.mx_source_id, each.worker_id) == (mx_source_id, worker_id):
                return None if worker_id in self.gone else each
        return None
