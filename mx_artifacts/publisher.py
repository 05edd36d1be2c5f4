"""ArtifactPublisher: seal, serve, announce and keep alive, in one object."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mx_artifacts.artifacts.factories import transfer_of_kind
from mx_artifacts.artifacts.labels import root_labels
from mx_artifacts.artifacts.protocol import ArtifactBundle, PackedRoot
from mx_artifacts.artifacts.source.publish import (
    PublishedArtifactSource,
    ServingLimits,
    publish_artifact_source,
    replace_artifact,
)
from mx_artifacts.artifacts.tarred import TarredP2PArtifactTransfer
from mx_artifacts.client.central import CentralClient
from mx_artifacts.compression import check_mode
from mx_artifacts.core.chunks import DEFAULT_CHUNK_SIZE_BYTES
from mx_artifacts.core.identity import SourceIdentity
from mx_artifacts.core.sources import PodIdentity
from mx_artifacts.errors import BundleError, ConfigurationError
from mx_artifacts.identity.identify import check_stated_roots
from mx_artifacts.kinds.base import CacheKind, RankSet
from mx_artifacts.memory.budget import BundleBudget
from mx_artifacts.observability.events import EventSink, ignore_events
from mx_artifacts.settings import (
    BUNDLE_ROOT,
    COMPRESSION,
    RESIDENT_BUDGET,
    TOPOLOGY,
    WORKER_STREAM_PORT,
)
from mx_artifacts.transport.base import Transport
from mx_artifacts.worker.worker_server import WorkerServer


@dataclass(frozen=True)
class PublisherSettings:
    """How a publisher serves.

    Attributes:
        bundle_root: for bundles that exceed the memory, in files that vanish with the process.
        resident_budget_bytes: memory for all bundles of this publisher.
        host: what targets are told to connect to, and where the worker service listens.
        port: of the worker service; 0 is any. With `strict_port` a port in use is an error,
            else another one is taken.
        stream_port: of the stream transport; 0 is any. One in use: another, unless `strict_port`.
        lease_ttl_seconds: how long a target may hold a chunk without renewing.
        max_bytes_per_second: given away to all targets together; None: any number.
        compression: "none", or else blocks are compressed for targets that ask for it.
        topology: labels of where this node is (MX_P2P_TOPOLOGY), for targets that choose by them.
    """

    bundle_root: Path = field(default_factory=BUNDLE_ROOT.read)
    host: str = "127.0.0.1"
    port: int = 0
    strict_port: bool = False
    stream_port: int = field(default_factory=WORKER_STREAM_PORT.read)
    worker_rank: int = 0
    node_rank: int = 0
    chunk_size_bytes: int = DEFAULT_CHUNK_SIZE_BYTES
    lease_ttl_seconds: float = 30.0
    resident_budget_bytes: int = field(default_factory=RESIDENT_BUDGET.read)
    limits: ServingLimits = field(default_factory=ServingLimits)
    pod: PodIdentity = field(default_factory=PodIdentity)
    max_bytes_per_second: float | None = None
    compression: str = field(default_factory=COMPRESSION.read)
    topology: Mapping[str, str] = field(default_factory=TOPOLOGY.read)


@dataclass(frozen=True)
class PublishResult:
    """What was announced, and what of the roots went into it.

    `uneven_ranks` are the models of which some rank's directory lacks what others have: there the
    target's rank compiles alone while the others wait for it.
    """

    kind: str
    mx_source_id: str
    worker_id: str
    artifact_id: str
    endpoint: str
    total_bytes: int
    roots: tuple[PackedRoot, ...]
    also_source_ids: tuple[str, ...] = ()
    uneven_ranks: tuple[RankSet, ...] = ()

    @property
    def file_count(self) -> int:
        """Files in all roots."""
        return sum(root.report.file_count for root in self.roots)


@dataclass
class _Serving:
    """A kind that is served, and how it is sealed again."""

    transfer: TarredP2PArtifactTransfer
    source: PublishedArtifactSource
    require_ranks: int | None


class ArtifactPublisher:
    """Publishes caches of one process. Use it as a context manager, or `close` it.

    The transport is the caller's; close it after the publisher. Not thread-safe.
    """

    def __init__(
        self,
        *,
        client: CentralClient,
        transport: Transport,
        settings: PublisherSettings,
        events: EventSink = ignore_events,
    ) -> None:
        """Start the worker service.

        Raises:
            ConfigurationError: the port is in use, or the host is not this machine's; or zstd is
                demanded and not installed.
        """
        check_mode(settings.compression)
        self._client = client
        self._transport = transport
        self._settings = settings
        self._events = events
        self._worker_id = uuid.uuid4().hex[:8]
        self._serving: list[_Serving] = []
        self._memory = BundleBudget(settings.resident_budget_bytes, settings.bundle_root)
        self._server = WorkerServer(
            transport,
            host=settings.host,
            port=settings.port,
            strict_port=settings.strict_port,
            stream_port=settings.stream_port,
            worker_rank=settings.worker_rank,
            lease_ttl_seconds=settings.lease_ttl_seconds,
            max_bytes_per_second=settings.max_bytes_per_second,
            compression=settings.compression,
            block_slots=settings.limits.slots,
            events=events,
        )
        self._server.start()

    @property
    def worker_id(self) -> str:
        """This process's id at the central server: 8 hex characters."""
        return self._worker_id

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
        """Seal, serve and announce one kind; it stays announced until `close`.

        It is announced under `identity` and, from the same memory, under each of `also`.
        `roots` overrides the kind's roots by name ("" is the primary root); the others are where
        the identity's engine looks. `accelerator` is the
        family of the device that the cache is for ("cuda"); empty: unknown.

        With `require_ranks`, each model of a kind that keeps directories by rank must have that
        many complete ranks, and no other.

        Raises:
            BundleError: nothing to publish, or not the required ranks.
            ConfigurationError, MetadataError, RegistrationError, NoSpaceError
        """
        settings = self._settings
        for each in (identity, *also):
            check_stated_roots(kind, each, roots or {})
        transfer = transfer_of_kind(
            kind,
            bundle_root=settings.bundle_root,
            roots=roots,
            framework=identity.backend_framework,
            chunk_size=settings.chunk_size_bytes,
            memory=self._memory,
            events=self._events,
        )
        bundle = transfer.prepare_source()
        try:
            _check_ranks(kind, bundle, require_ranks)
            source = publish_artifact_source(
                self._client,
                bundle,
                identity,
                self._transport,
                self._worker_id,
                worker_server=self._server,
                worker_rank=settings.worker_rank,
                node_rank=settings.node_rank,
                accelerator=accelerator,
                pod=settings.pod,
                topology={**settings.topology, **root_labels(transfer.roots)},
                limits=settings.limits,
                also=also,
            )
        except BaseException:
            bundle.close()
            raise
        self._serving.append(_Serving(transfer, source, require_ranks))
        return _published(kind, source)

    def republish(self, published: PublishResult) -> PublishResult:
        """Seal what was published again; serve and announce it in the place of what was.

        Returns `published` itself where that gives the same artifact: then nothing changed. Else
        whoever looks for sources finds the old artifact or the new one, under the same ids; the
        old one is served no more, but what is leased of it stays until its lease ends.

        Raises:
            BundleError: nothing to publish any more, or not the required ranks.
            MetadataError, RemoteError, RegistrationError, NoSpaceError
            ConfigurationError: `published` is not what is served, such as when it was replaced.
            In all cases what was published is served on.
        """
        serving = self._serving_of(published)
        kind, source = serving.transfer.cache_kind, serving.source
        bundle = serving.transfer.prepare_source(source.bundle)
        try:
            _check_ranks(kind, bundle, serving.require_ranks)
            same = bundle.artifact_id == source.artifact_id
        except BaseException:
            bundle.close()
            raise
        if same:
            bundle.close()
            return published
        settings = self._settings
        serving.source = replace_artifact(
            source, bundle, slots=settings.limits.slots, node_rank=settings.node_rank
        )
        return _published(kind, serving.source)

    def _serving_of(self, published: PublishResult) -> _Serving:
        for serving in self._serving:
            source = serving.source
            if (source.mx_source_id, source.artifact_id) == (
                published.mx_source_id,
                published.artifact_id,
            ):
                return serving
        raise ConfigurationError(
            f"artifact {published.artifact_id} of source {published.mx_source_id} is not served by "
            f"worker {self._worker_id}",
            hint="publish again what `publish` or `republish` returned last",
        )

    def close(self) -> None:
        """Mark every source STALE, let readers finish, free memory and files. Idempotent."""
        all_serving, self._serving = self._serving, []
        for serving in all_serving:
            serving.source.stop()
        self._server.stop()

    def __enter__(self) -> ArtifactPublisher:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _published(kind: CacheKind, source: PublishedArtifactSource) -> PublishResult:
    return PublishResult(
        kind=kind.name,
        mx_source_id=source.mx_source_id,
        worker_id=source.worker_id,
        artifact_id=source.artifact_id,
        endpoint=source.worker_grpc_endpoint,
        total_bytes=source.bundle.manifest.total_size,
        roots=source.bundle.roots,
        also_source_ids=source.source_ids[1:],
        uneven_ranks=tuple(each for each in _rank_sets(kind, source.bundle.roots) if each.lacking),
    )


def _rank_sets(kind: CacheKind, roots: Iterable[PackedRoot]) -> tuple[RankSet, ...]:
    if kind.rank_sets is None:
        return ()
    return tuple(each for root in roots for each in kind.rank_sets(root.report.paths))


def _check_ranks(kind: CacheKind, bundle: ArtifactBundle, count: int | None) -> None:
    if count is None or kind.rank_sets is None:
        return
    ranks = _rank_sets(kind, bundle.roots)
    wrong = [
        f"{each.directory} has {each.complete}"
        + (f" ({', '.join(each.lacking)} incomplete)" if each.lacking else "")
        for each in ranks
        if each.complete != count or each.lacking
    ]
    if not ranks:
        wrong = ["there is none"]
    if wrong:
        raise BundleError(
            f"{kind.name} must have {count} complete ranks of each model: {'; '.join(wrong)}",
            hint="wait until every rank has saved its cache, and remove directories of models "
            "that are not served any more; or publish without --require-ranks",
        )
