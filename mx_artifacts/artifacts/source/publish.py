"""Announces a sealed artifact, and serves it and keeps its record alive until it is stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType

from mx_artifacts.artifacts.protocol import ArtifactBundle
from mx_artifacts.artifacts.source.advertisement import Advertisement
from mx_artifacts.artifacts.source.source_worker import SourceWorker
from mx_artifacts.core.identity import SourceIdentity, compute_mx_source_id
from mx_artifacts.errors import ConfigurationError, MxArtifactsError

NO_LABELS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class PublishedArtifactSource:
    """An artifact that is advertised and served. `stop` it, or its memory stays registered.

    `advertisements` are those under each of its identities, its own first.
    """

    worker: SourceWorker
    bundle: ArtifactBundle
    advertisements: tuple[Advertisement, ...]

    @property
    def mx_source_id(self) -> str:
        """The id of its own identity."""
        return self.source_ids[0]

    @property
    def source_ids(self) -> tuple[str, ...]:
        """The ids of all identities that it is advertised under."""
        return tuple(each.mx_source_id for each in self.advertisements)

    @property
    def artifact_id(self) -> str:
        """SHA-256 of the manifest, 64 hex characters."""
        return self.bundle.artifact_id

    @property
    def worker_id(self) -> str:
        """The worker's id at the central server."""
        return self.worker.worker_id

    @property
    def worker_grpc_endpoint(self) -> str:
        """Where targets connect to, host:port."""
        return self.worker.server.endpoint

    def stop(self) -> None:
        """Mark STALE and serve no more; memory goes with the last lease. Idempotent.

        In a child of fork nothing happens.
        """
        if not self.worker.is_of_this_process:
            return
        for each in self.advertisements:
            each.stop()
        _remove(self.worker, self.source_ids, self.bundle)


def publish_artifact_source(
    worker: SourceWorker,
    bundle: ArtifactBundle,
    identity: SourceIdentity,
    *,
    also: Sequence[SourceIdentity] = (),
    accelerator: str = "",
    labels: Mapping[str, str] = NO_LABELS,
) -> PublishedArtifactSource:
    """Serve `bundle` from `worker`, advertise it and keep it alive until it is stopped.

    It is advertised under `identity` and under each of `also`, from one registered memory.
    `labels` are labels of this source only, such as those of `root_labels`. Labels for the place of
    this node come from the settings of the worker.

    The returned source owns `bundle`; when this raises, the caller still does.
    Memory and tables are registered before the record exists, so that a target that finds the
    source can read from it at once.

    Raises:
        ConfigurationError: the identity has no model name.
        MetadataError: the central server does not answer.
        RegistrationError, IntegrityError: the bundle cannot be served.
    """
    if not all(each.model_name for each in (identity, *also)):
        raise ConfigurationError(
            "an identity without a model name cannot be published",
            hint="state the model with --model",
        )
    own_id = compute_mx_source_id(identity)
    identities = {compute_mx_source_id(each): each for each in (identity, *also)}
    record = worker.record(
        bundle.summary(worker.node_rank),
        worker_rank=worker.worker_rank,
        accelerator=accelerator,
        labels=labels,
    )
    _serve(worker, own_id, bundle)
    advertisements: list[Advertisement] = []
    try:
        for mx_source_id, each in identities.items():
            if advertisements:  # the first of which may go by the server's id by now
                first_id = advertisements[0].mx_source_id
                worker.artifacts.add_alias(mx_source_id, first_id, bundle.artifact_id)
            advertisements.append(Advertisement(each, record, worker))
            advertisements[-1].start()
    except BaseException:
        for advertisement in advertisements:
            advertisement.stop()
        ids = [*identities, *(each.mx_source_id for each in advertisements)]
        _remove(worker, ids, bundle)
        raise
    return PublishedArtifactSource(worker, bundle, tuple(advertisements))


def replace_artifact(
    source: PublishedArtifactSource, bundle: ArtifactBundle
) -> PublishedArtifactSource:
    """Serve and advertise `bundle`, another artifact, in place of the one that `source` serves.

    A target that looks for sources finds either the old artifact or the new one. Leases of the old
    one stay valid until they end. `bundle` is owned here, also when this raises.

    Raises:
        MetadataError, RemoteError, RegistrationError: `source` continues to serve the old artifact.
    """
    worker, source_ids = source.worker, source.source_ids
    try:
        _serve(worker, source.mx_source_id, bundle)
    except BaseException:
        bundle.close()
        raise
    try:
        for alias in source_ids[1:]:
            worker.artifacts.add_alias(alias, source.mx_source_id, bundle.artifact_id)
        for each in source.advertisements:
            each.change(bundle.summary(worker.node_rank))
    except BaseException:
        for each in source.advertisements:
            with suppress(MxArtifactsError):  # then the next beat does it
                each.change(source.bundle.summary(worker.node_rank))
        _remove(worker, source_ids, bundle)
        raise
    _remove(worker, source_ids, source.bundle)
    return replace(source, bundle=bundle)


def _serve(worker: SourceWorker, mx_source_id: str, bundle: ArtifactBundle) -> None:
    worker.artifacts.add_artifact(
        mx_source_id,
        bundle.artifact_id,
        bundle.manifest,
        bundle.bundles,
        slots=worker.settings.slots,
        indexes=bundle.index_by_file(),
    )


def _remove(worker: SourceWorker, source_ids: Sequence[str], bundle: ArtifactBundle) -> None:
    for mx_source_id in source_ids:
        worker.artifacts.remove_artifact(mx_source_id, bundle.artifact_id)
