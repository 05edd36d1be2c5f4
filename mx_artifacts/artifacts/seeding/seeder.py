"""Seeds: a target serves what it receives, from the first span on, under the same artifact id.

So the nodes of a fleet that starts at once read from each other, and not all from one source. While
a target has only a part, its record says INITIALIZING; peers that cannot read partial artifacts
skip such records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial

from mx_artifacts.artifacts.labels import own_labels
from mx_artifacts.artifacts.protocol import ArtifactSourceEndpoint
from mx_artifacts.artifacts.seeding.seed import Seed
from mx_artifacts.artifacts.seeding.seeding_receiver import SeedingReceiver
from mx_artifacts.artifacts.source.advertisement import Advertisement
from mx_artifacts.artifacts.source.source_worker import SourceWorker
from mx_artifacts.artifacts.target.root_receiver import RootReceiver
from mx_artifacts.bundle.index import BundleMap
from mx_artifacts.core.identity import SourceIdentity
from mx_artifacts.core.manifest import ArtifactManifest
from mx_artifacts.core.sources import ArtifactSummary
from mx_artifacts.errors import MxArtifactsError, RegistrationError
from mx_artifacts.memory.budget import BundleBudget
from mx_artifacts.memory.buffers import Buffer, Bundle
from mx_artifacts.observability.catalogue import SeedFailed
from mx_artifacts.observability.events import EventSink
from mx_artifacts.worker.partial_chunk_source import PartialChunkSource


class Seeder:
    """Serves what this process receives, one artifact of a source id at a time. One thread.

    It listens from when there is something to serve. `close` it.
    """

    def __init__(self, open_worker: Callable[[], SourceWorker], events: EventSink) -> None:
        """Make no call yet. This object closes what `open_worker` returns."""
        self._open_worker = open_worker
        self._events = events
        self._worker: SourceWorker | None = None
        self._seeds: dict[str, Seed] = {}

    @property
    def endpoint(self) -> str:
        """Address at which it serves (host:port), or "". A process must not read from itself."""
        return self._worker.server.endpoint if self._worker is not None else ""

    @property
    def is_serving(self) -> bool:
        """Whether it serves an artifact."""
        return bool(self._seeds)

    def receiver(
        self,
        identity: SourceIdentity,
        inner: RootReceiver | None,
        source: ArtifactSourceEndpoint,
    ) -> SeedingReceiver:
        """Return what receives the artifact of `source`, serves it, and passes it on to `inner`.

        Raises:
            ConfigurationError: nothing can listen where the settings say.
            TransportUnavailableError, BackendUnavailableError
        """
        if self._worker is None:
            self._worker = self._open_worker()
        return SeedingReceiver(inner, partial(self.begin, self._worker, identity, source))

    def begin(
        self,
        worker: SourceWorker,
        identity: SourceIdentity,
        source: ArtifactSourceEndpoint,
        manifest: ArtifactManifest,
        maps: Mapping[int, BundleMap],
    ) -> Seed | None:
        """Begin to serve the artifact that arrives from `source`; return None if that fails.

        An install must not fail because this node cannot serve others. The event seed.failed
        reports the error.
        """
        self.end(source.mx_source_id)
        with ExitStack() as on_failure:
            try:
                seed = self._serve(worker, identity, source, manifest, maps, on_failure)
            except MxArtifactsError as error:
                self._events(SeedFailed(error))
                return None
            seed.undo = on_failure.pop_all()
        self._seeds[source.mx_source_id] = seed
        return seed

    def _serve(
        self,
        worker: SourceWorker,
        identity: SourceIdentity,
        source: ArtifactSourceEndpoint,
        manifest: ArtifactManifest,
        maps: Mapping[int, BundleMap],
        undo: ExitStack,
    ) -> Seed:
        artifact_id, mx_source_id = manifest.artifact_id, source.mx_source_id
        bundles = self._allocate(worker.memory, manifest, undo)
        growing = PartialChunkSource(worker.transport, bundles)
        undo.callback(growing.close)
        indexes = {index: each.index for index, each in maps.items()}
        worker.artifacts.add_source(mx_source_id, artifact_id, manifest, growing, indexes)
        undo.callback(worker.artifacts.remove_artifact, mx_source_id, artifact_id)
        seed = Seed(growing, bundles, maps)
        record = worker.record(
            ArtifactSummary(
                artifact_id,
                manifest.total_size,
                len(manifest.files),
                len(manifest.chunks),
                source.node_rank,
            ),
            worker_rank=source.worker_rank,
            accelerator=source.accelerator,
            labels=own_labels(source.topology),
        )
        seed.advertisement = Advertisement(
            identity, record, worker, is_complete=lambda: seed.is_complete
        )
        undo.callback(seed.advertisement.stop)
        seed.advertisement.start()
        return seed

    def _allocate(
        self, memory: BundleBudget, manifest: ArtifactManifest, undo: ExitStack
    ) -> list[Bundle]:
        bundles: list[Bundle] = []
        for file in manifest.files:
            bundle = memory.allocate(max(1, file.size))
            undo.callback(bundle.close)
            if not isinstance(bundle, Buffer):
                raise RegistrationError(
                    f"{manifest.total_size} bytes to seed are more than the memory for bundles",
                    hint="raise MX_ARTIFACT_RESIDENT_BUDGET, or run `mx-artifact publish` after "
                    "the install",
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
        """Serve nothing more, and let readers finish. Idempotent."""
        worker, self._worker = self._worker, None
        if worker is not None and worker.is_of_this_process:
            for mx_source_id in list(self._seeds):
                self.end(mx_source_id)
            worker.close()
