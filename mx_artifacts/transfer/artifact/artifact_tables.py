"""Finds the tables of an artifact: manifest and member maps, from the first source with valid ones.

A source that does not answer delays nothing: after a moment the next one is asked too.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from mx_artifacts.bundle.index import BundleMap, map_bundle
from mx_artifacts.bundle.scan import DEFAULT_LIMITS
from mx_artifacts.client.worker import WorkerClient
from mx_artifacts.core.manifest import ArtifactManifest, ArtifactRef, ManifestChunk
from mx_artifacts.core.member_index import MemberIndex
from mx_artifacts.errors import (
    BundleError,
    ManifestInvalidError,
    MxArtifactsError,
    ReadTimeoutError,
)
from mx_artifacts.runtime.deadline import SLOW_HINT, Deadline
from mx_artifacts.runtime.gc_pause import gc_paused
from mx_artifacts.runtime.node_limits import node_limit_of
from mx_artifacts.transfer.artifact.source import Source
from mx_artifacts.transfer.artifact.source_claims import check_header, check_tables
from mx_artifacts.transfer.base import SourceAddress
from mx_artifacts.transfer.timing import TransferTiming

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ArtifactTables:
    """The tables, and the source that gave them: it is open, or cannot be opened."""

    source: Source
    manifest: ArtifactManifest
    maps: Mapping[int, BundleMap]


NewSource = Callable[[SourceAddress, ArtifactManifest, WorkerClient], Source]
OnFailure = Callable[[SourceAddress, MxArtifactsError], None]


def find_tables(
    addresses: Sequence[SourceAddress],
    artifact_id: str,
    deadline: Deadline,
    new_source: NewSource,
    on_failure: OnFailure,
    timing: TransferTiming,
    *,
    serves_on: bool,
) -> ArtifactTables | None:
    """Ask `addresses` in their order; return the first valid tables, None if all failed.

    Their source is opened while its index arrives. That may fail, which shows when it is opened
    again.

    An empty `artifact_id` accepts the id of the first source's artifact.
    """
    results: SimpleQueue[_Attempt] = SimpleQueue()
    waiting = list(addresses)
    asked: list[_Attempt] = []
    failures = 0
    try:
        while failures < len(addresses):
            if waiting:
                attempt = _Attempt(waiting.pop(0), artifact_id, deadline, timing, results.put)
                asked.append(attempt)
                attempt.start(new_source, serves_on=serves_on)
            try:
                wait = min(timing.hedge, deadline.remaining()) if waiting else None
                answer = results.get(timeout=wait)
            except Empty:
                continue
            if answer.tables is not None:
                asked.remove(answer)
                return answer.tables
            assert answer.error is not None
            on_failure(answer.address, answer.error)
            failures += 1
        return None
    finally:
        for attempt in asked:
            attempt.close()


class _Attempt:
    """One source being asked, in a thread of its own."""

    def __init__(
        self,
        address: SourceAddress,
        artifact_id: str,
        deadline: Deadline,
        timing: TransferTiming,
        done: Callable[[_Attempt], object],
    ) -> None:
        self.address = address
        self.tables: ArtifactTables | None = None
        self.error: MxArtifactsError | None = None
        self._client = WorkerClient(
            address.endpoint,
            timeout_seconds=min(timing.call, max(0.001, deadline.remaining())),
        )
        self._artifact = ArtifactRef(address.mx_source_id, artifact_id)
        self._deadline = deadline
        self._done = done
        self._source: Source | None = None

    def start(self, new_source: NewSource, *, serves_on: bool) -> None:
        """Begin to ask; `done` is called with this when it has tables or an error."""
        threading.Thread(
            target=self._run, args=(new_source, serves_on), name="mx-plan", daemon=True
        ).start()

    def close(self) -> None:
        """Hang up."""
        if self._source is not None:
            self._source.close()
        self._client.close()

    def _run(self, new_source: NewSource, serves_on: bool) -> None:
        client = self._client
        try:
            call = client.extension.ask_for_index(self._artifact)
            manifest = read_manifest(client, self._artifact, self._deadline)
            self._source = new_source(self.address, manifest, client)
            opening = threading.Thread(
                target=self._source.try_open,
                kwargs={"serves_on": serves_on},
                name="mx-open-first",
                daemon=True,
            )
            opening.start()
            maps = read_maps(client, call, manifest)
            opening.join(self._deadline.remaining())  # to connect may take longer
            self.tables = ArtifactTables(self._source, manifest, maps)
        except MxArtifactsError as error:
            self.error = error
        except Exception as error:  # a channel that was closed meanwhile: nobody listens
            closed = ReadTimeoutError(f"source {self.address.endpoint}: {error}")
            self.error = node_limit_of(error) or closed
        self._done(self)


def read_manifest(
    client: WorkerClient, artifact: ArtifactRef, deadline: Deadline
) -> ArtifactManifest:
    """Return the manifest of `artifact`, checked against its id.

    Raises:
        ManifestInvalidError, ArtifactIdMismatchError, PeerLostError, RemoteError,
        RecordNotFoundError, ReadTimeoutError
    """
    header = client.header(artifact)
    chunk_count = check_header(header, artifact)
    chunks: list[ManifestChunk] = []
    found = ArtifactRef(artifact.mx_source_id, header.artifact_id)
    for page in client.chunk_pages(found, chunk_count):
        chunks += page
        if deadline.passed:
            raise ReadTimeoutError(
                f"source {client.endpoint} gave {len(chunks)} of {chunk_count} entries of its "
                f"chunk table in {deadline.budget_seconds:g} s",
                hint=SLOW_HINT,
            )
    return check_tables(header, chunks, artifact.artifact_id)


def read_maps(
    client: WorkerClient, call: Any, manifest: ArtifactManifest
) -> Mapping[int, BundleMap]:
    """Return the map of every bundle, by file index; none where the source has no good index.

    `call` is the question for it (`SourceExtension.ask_for_index`). Without an index, whole chunks
    are read, and their headers judged: a wrong one costs time only.

    Raises:
        PeerLostError, RemoteError
    """
    try:
        index = client.extension.read_index(call, DEFAULT_LIMITS.max_members)
        if index is None:
            return {}
        with gc_paused():
            return {
                file.file_index: map_bundle(
                    index.get(file.file_index, MemberIndex()), file.size, file.checksum
                )
                for file in manifest.files
            }
    except (ManifestInvalidError, BundleError) as error:
        logger.warning("source %s: %s; reading its headers instead", client.endpoint, error)
        return {}
