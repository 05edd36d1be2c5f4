"""What the central server stores about sources, and what a source says about its artifacts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

from mx_artifacts.client.central import CALL_TIMEOUT_SECONDS, CentralClient
from mx_artifacts.client.worker import WorkerClient
from mx_artifacts.core.manifest import ArtifactManifest, ArtifactRef
from mx_artifacts.core.sources import SourceQuery, SourceStatus, StoredWorker
from mx_artifacts.errors import RecordNotFoundError
from mx_artifacts.kinds.base import CacheKind
from mx_artifacts.kinds.registry import kind_name_of
from mx_artifacts.transfer.artifact.source_claims import check_header, check_tables


def listed_workers(
    client: CentralClient, query: SourceQuery, kind: CacheKind | None = None
) -> Iterator[StoredWorker]:
    """Yield the records behind a listing; with `kind`, those of this kind.

    A record that is removed meanwhile is left out.

    Raises:
        MetadataError: the central server does not answer.
    """
    if kind is None:
        yield from _stored(client, query)
        return
    # The server cannot filter by kind alone, so the limit is applied here.
    everything = _stored(client, replace(query, limit=None))
    of_kind = (each for each in everything if kind_name_of(each.identity) == kind.name)
    yield from islice(of_kind, query.limit)


def _stored(client: CentralClient, query: SourceQuery) -> Iterator[StoredWorker]:
    for ref in client.list_sources(query):
        stored = client.get_metadata(ref.mx_source_id, ref.worker_id)
        if stored is not None:
            yield stored


def workers_of_source(
    client: CentralClient, source_id: str, worker_id: str | None = None
) -> list[StoredWorker]:
    """Return the records of a source, all workers' or one's.

    Raises:
        RecordNotFoundError: there is none.
        MetadataError: the central server does not answer.
    """
    if worker_id is not None:
        stored = client.get_metadata(source_id, worker_id)
        workers = [stored] if stored else []
    else:
        workers = list(_stored(client, SourceQuery(mx_source_id=source_id)))
    if not workers:
        of_worker = f" worker {worker_id}" if worker_id else ""
        raise RecordNotFoundError(
            f"central server {client.address} knows no source {source_id}{of_worker}",
            hint="`mx-artifact sources list` shows the known sources",
        )
    return workers


def announced_artifact(
    client: CentralClient,
    source_id: str,
    worker_id: str | None = None,
    artifact_id: str | None = None,
) -> tuple[str, str]:
    """Return where a source listens, and which artifact it announces; ready workers go first.

    Raises:
        RecordNotFoundError: no worker of the source announces an artifact, or `artifact_id`.
        MetadataError: the central server does not answer.
    """
    workers = workers_of_source(client, source_id, worker_id)
    for stored in sorted(workers, key=lambda each: each.record.status is not SourceStatus.READY):
        artifact = stored.record.artifact
        if artifact and artifact_id in (None, artifact.artifact_id):
            return stored.record.worker_grpc_endpoint, artifact.artifact_id
    raise RecordNotFoundError(
        f"source {source_id} announces no {'such ' if artifact_id else ''}artifact",
        hint=f"`mx-artifact sources show {source_id}` shows what it announces",
    )


@dataclass(frozen=True)
class ServedArtifact:
    """An artifact that a source serves; the manifest's tables hash to the id."""

    artifact_id: str
    manifest: ArtifactManifest
    chunk_count: int


def served_artifact(
    endpoint: str,
    source_id: str,
    artifact_id: str = "",
    *,
    timeout_seconds: float = CALL_TIMEOUT_SECONDS,
) -> ServedArtifact:
    """Ask the worker at `endpoint` what it serves; no byte of the artifact itself is read.

    Raises:
        MxArtifactsError: it does not answer, serves nothing of the sort, or its tables do not hash
            to the artifact's id.
    """
    with WorkerClient(endpoint, timeout_seconds=timeout_seconds) as client:
        artifact = ArtifactRef(source_id, artifact_id)
        header = client.header(artifact)
        chunk_count = check_header(header, artifact)
        pages = client.chunk_pages(ArtifactRef(source_id, header.artifact_id), chunk_count)
        chunks = [chunk for page in pages for chunk in page]
        manifest = check_tables(header, chunks, artifact_id)
    return ServedArtifact(header.artifact_id, manifest, chunk_count)
