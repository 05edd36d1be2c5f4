"""ArtifactPublisher: seal, serve, announce and keep alive, in one object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mx_artifacts.artifacts.factories import transfer_of_kind
from mx_artifacts.artifacts.labels import root_labels
from mx_artifacts.artifacts.protocol import ArtifactBundle, PackedRoot
from mx_artifacts.artifacts.source.publish import (
    PublishedArtifactSource,
    publish_artifact_source,
    replace_artifact,
)
from mx_artifacts.artifacts.source.publisher_settings import PublisherSettings
from mx_artifacts.artifacts.source.server_wait import ServerWait
from mx_artifacts.artifacts.source.source_worker import SourceWorker
from mx_artifacts.artifacts.tarred import TarredP2PArtifactTransfer
from mx_artifacts.client.central import CentralClient
from mx_artifacts.core.identity import SourceIdentity
from mx_artifacts.errors import BundleError, ConfigurationError
from mx_artifacts.identity.identify import check_stated_roots
from mx_artifacts.kinds.base import CacheKind, RankSet
from mx_artifacts.observability.events import EventSink, ignore_events
from mx_artifacts.runtime.clock import SYSTEM_CLOCK, Clock
from mx_artifacts.runtime.node_limits import node_limits_named
from mx_artifacts.transport.base import Transport


@dataclass(frozen=True)
class PublishResult:
    """The announced artifact, and what of each root is in it.

    `uneven_ranks` are the models with a rank whose directory lacks files of other ranks. This rank
    of a target compiles alone while the others wait for it.
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

    If it is not closed, its sources are marked STALE when the process ends normally; in a child
    process made by fork, it does nothing. The caller owns the transport; close it after the
    publisher. Not thread-safe.
    """

    def __init__(
        self,
        *,
        client: CentralClient,
        transport: Transport,
        settings: PublisherSettings,
        events: EventSink = ignore_events,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Make no call and do not listen yet.

        Raises:
            ConfigurationError: no other machine could use the address to announce; there is no such
                port; or zstd is required but not installed.
        """
        settings.serving.check(client.address)
        self._client = client
        self._transport = transport
        self._settings = settings
        self._events = events
        self._server_wait = ServerWait(settings.publish_timeout_seconds, events=events, clock=clock)
        self._worker: SourceWorker | None = None
        self._serving: list[_Serving] = []

    @node_limits_named()
    def start(self) -> SourceWorker:
        """Wait for the central server, then listen. Idempotent; `with` and `publish` call it.

        Raises:
            ConfigurationError: the port is in use, or the address to listen on is not this
                machine's.
            MetadataError, RemoteError: the central server does not answer (in time), or is none.
        """
        if self._worker is None:
            self._server_wait.call(self._client.health)
            self._worker = SourceWorker(
                self._client,
                self._transport,
                self._settings.serving,
                worker_rank=self._settings.worker_rank,
                node_rank=self._settings.node_rank,
                server_wait=self._server_wait,
                events=self._events,
            )
        return self._worker

    @node_limits_named()
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
        the identity's engine looks. `accelerator` is the family of the device that the cache is
        for ("cuda"); empty: unknown.

        With `require_ranks`, each model of a kind that keeps directories by rank must have that
        many complete ranks, and no other.

        Raises:
            BundleError: nothing to publish, or not the required ranks.
            ConfigurationError, MetadataError, RemoteError, RegistrationError, NoSpaceError
        """
        for each in (identity, *also):
            check_stated_roots(kind, each, roots or {})
        worker = self.start()
        transfer = transfer_of_kind(
            kind,
            bundle_root=self._settings.serving.bundle_root,
            roots=roots,
            framework=identity.backend_framework,
            chunk_size=self._settings.chunk_size_bytes,
            memory=worker.memory,
            events=self._events,
        )
        bundle = transfer.prepare_source()
        try:
            _check_ranks(kind, bundle, require_ranks)
            source = publish_artifact_source(
                worker,
                bundle,
                identity,
                also=also,
                accelerator=accelerator,
                labels=root_labels(transfer.roots),
            )
        except BaseException:
            bundle.close()
            raise
        self._serving.append(_Serving(transfer, source, require_ranks))
        return _published(kind, source)

    def republish(self, published: PublishResult) -> PublishResult:
        """Seal a published kind again; serve and announce the result in place of the old artifact.

        Return `published` itself if the result is the same artifact; then nothing changed.
        Otherwise, a target that looks for sources finds either the old artifact or the new one,
        under the same ids. The old one is no longer served, but its leases stay valid until they
        end.

        Raises:
            BundleError: there is nothing to publish any more, or required ranks are missing.
            MetadataError, RemoteError, RegistrationError, NoSpaceError
            ConfigurationError: `published` is not served, for example because it was replaced. In
            all cases, the old artifact is still served.
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
        serving.source = replace_artifact(source, bundle)
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
            f"this publisher does not serve artifact {published.artifact_id} of source "
            f"{published.mx_source_id}",
            hint="pass the result of the last `publish` or `republish`",
        )

    def close(self) -> None:
        """Mark every source STALE, let readers finish, free memory and files. Idempotent."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()
        self._serving.clear()

    def __enter__(self) -> ArtifactPublisher:
        self.start()
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
            hint="wait until every rank has saved its cache, and remove the directories of models "
            "that are no longer served; or publish without --require-ranks",
        )
