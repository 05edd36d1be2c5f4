"""Seeds: a target serves what it receives, from the first span on, under the same artifact id.

So a fleet that starts at once reads from each other, and not all from one source. While a target
has a part only, its record says INITIALIZING, which peers that know nothing of parts pass over.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import ExitStack

from mx_artifacts.artifacts.labels import own_labels
from mx_artifacts.artifacts.protocol import ArtifactSourceEndpoint
from mx_artifacts.artifacts.source.announcement import Announcement
from mx_artifacts.artifacts.source.heartbeat import Heartbeat
from mx_artifacts.artifacts.transport_labels import transport_labels
from mx_artifacts.bundle.index import BundleMap
from mx_artifacts.bundle.spans import Span
from mx_artifacts.client.central import CentralClient
from mx_artifacts.core.identity import SourceIdentity
from mx_artifacts.core.manifest import ArtifactManifest
from mx_artifacts.core.sources import ArtifactSummary, PodIdentity, WorkerRecord
from mx_artifacts.errors import MxArtifactsError, RegistrationError
from mx_artifacts.memory.budget import BundleBudget
from mx_artifacts.memory.buffers import Buffer, Bundle
from mx_artifacts.observability.catalogue import SeedFailed
from mx_artifacts.observability.events import EventSink
from mx_artifacts.transport.base import Transport
from mx_artifacts.worker.partial_chunk_source import PartialChunkSource
from mx_artifacts.worker.worker_server import WorkerServer

TELL_SECONDS = 2.0
"""How long an install may wait until the central server knows that its seed is complete."""


class Seeder:
    """Serves what this process receives, one artifact of a source id at a time. One thread."""

    def __init__(
        self,
        client: CentralClient,
        transport: Transport,
        server: WorkerServer,
        memory: BundleBudget,
        pod: PodIdentity,
        heartbeat_interval_seconds: float,
        events: EventSink,
        topology: Mapping[str, str],
    ) -> None:
        """`server` is started, and stopped by the caller after `close`.

        `topology` has labels of where this node is.
        """
        self._client = client
        self._transport = transport
        self._server = server
        self._memory = memory
        self._pod = pod
        self._heartbeat_interval_seconds = heartbeat_interval_seconds
        self._events = events
        self._topology = topology
        self._worker_id = uuid.uuid4().hex[:8]
        self._seeds: dict[str, Seed] = {}

    @property
    def endpoint(self) -> str:
        """Where it serves (host:port): nobody should read from itself."""
        return self._server.endpoint

    @property
    def is_serving(self) -> bool:
        """Whether it serves an artifact."""
        return bool(self._seeds)

    def begin(
        self,
        identity: SourceIdentity,
        source: ArtifactSourceEndpoint,
        manifest: ArtifactManifest,
        maps: Mapping[int, BundleMap],
    ) -> Seed | None:
        """Begin to serve the artifact that begins to come from `source`; None where that fails.

        An install must not fail because others cannot be served: the event seed.failed (error)
        tells.
        """
        self.end(source.mx_source_id)
        with ExitStack() as on_failure:
            try:
                seed = self._serve(identity, source, manifest, maps, on_failure)
            except MxArtifactsError as error:
                self._events(SeedFailed(error))
                return None
            seed.undo = on_failure.pop_all()
        self._seeds[source.mx_source_id] = seed
        return seed

    def _serve(
        self,
        identity: SourceIdentity,
        source: ArtifactSourceEndpoint,
        manifest: ArtifactManifest,
        maps: Mapping[int, BundleMap],
        undo: ExitStack,
    ) -> Seed:
        artifact_id, mx_source_id = manifest.artifact_id, source.mx_source_id
        bundles = self._allocate(manifest, undo)
        growing = PartialChunkSource(self._transport, bundles)
        undo.callback(growing.close)
        indexes = {index: each.index for index, each in maps.items()}
        self._server.add_source(mx_source_id, artifact_id, manifest, growing, indexes)
        undo.callback(self._server.remove_artifact, mx_source_id, artifact_id)
        seed = Seed(growing, bundles, maps)
        record = WorkerRecord(
            worker_rank=source.worker_rank,
            agent_name=self._transport.agent_name,
            worker_grpc_endpoint=self._server.endpoint,
            accelerator=source.accelerator,
            topology={
                **self._topology,
                **own_labels(source.topology),
                **transport_labels(self._transport.names()),
            },
            artifact=ArtifactSummary(
                artifact_id,
                manifest.total_size,
                len(manifest.files),
                len(manifest.chunks),
                source.node_rank,
            ),
        )
        announcement = Announcement(
            self._client,
            identity,
            record,
            self._worker_id,
            self._pod,
            self._server.rename_source,
        )
        seed.heartbeat = Heartbeat(
            announcement,
            publish=announcement.publish,
            worker_id=self._worker_id,
            worker_rank=source.worker_rank,
            interval_seconds=self._heartbeat_interval_seconds,
            healthy=self._server.is_healthy,
            ready=lambda: seed.is_complete,
            load=self._server.load,
        )
        undo.callback(seed.heartbeat.stop)
        seed.heartbeat.start()
        return seed

    def _allocate(self, manifest: ArtifactManifest, undo: ExitStack) -> list[Bundle]:
        bundles: list[Bundle] = []
        for file in manifest.files:
            bundle = self._memory.allocate(max(1, file.size))
            undo.callback(bundle.close)
            if not isinstance(bundle, Buffer):
                raise RegistrationError(
                    f"{manifest.total_size} bytes to be seeded exceed the memory for bundles",
                    hint="raise MX_ARTIFACT_RESIDENT_BUDGET, or publish the installed cache",
                )
            bundle.cut(file.size)
            bundles.append(bundle)
        return bundles

    def end(self, mx_source_id: str) -> None:
        """Serve what was received under this id no more. Idempotent."""
        seed = self._seeds.pop(mx_source_id, None)
        if seed is not None:
            seed.close()

    def close(self) -> None:
        """Serve nothing more. Idempotent."""
        for mx_source_id in list(self._seeds):
            self.end(mx_source_id)


class Seed:
    """One artifact, served as far as it has come. Any thread."""

    def __init__(
        self, growing: PartialChunkSource, bundles: list[Bundle], maps: Mapping[int, BundleMap]
    ) -> None:
        """Write the headers, which with a map do not come with the spans."""
        self._growing = growing
        self._views = [bundle.view for bundle in bundles]
        self.is_complete = False
        self.heartbeat: Heartbeat
        self.undo = ExitStack()
        for index, bundle_map in maps.items():
            for start, header in bundle_map.headers():
                self._views[index][start : start + len(header)] = header

    def took(self, span: Span, data: memoryview, covered: tuple[int, int]) -> None:
        """Take what was verified; others may read all that is `covered` (from, up to) from here on.

        That is the span and the headers and zeros around it, so that chunks become whole.
        """
        view = self._views[span.file_index]
        if span.chunk is not None:
            view[span.offset : span.end] = data
        for part in span.parts:
            view[part.offset : part.offset + part.length] = span.content_of(part, data)
        self._growing.arrived(span.file_index, *covered)

    def complete(self) -> None:
        """Hear that all was taken; peers that know nothing of parts may come."""
        self._growing.complete()
        self.is_complete = True
        self.heartbeat.beat_now(TELL_SECONDS)

    def close(self) -> None:
        """Serve it no more; its memory goes with the last lease. Idempotent."""
        self.undo.close()
