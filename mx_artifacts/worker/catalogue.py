"""What a worker serves, found by the names that a request gives."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from mx_artifacts.core.manifest import ArtifactManifest, ManifestChunk
from mx_artifacts.errors import ConfigurationError, RecordNotFoundError
from mx_artifacts.worker.chunk_source import ChunkSource


@dataclass(frozen=True)
class ServedArtifact:
    """An artifact and the memory it is read from."""

    mx_source_id: str
    artifact_id: str
    manifest: ArtifactManifest
    source: ChunkSource

    def chunk(self, index: int) -> ManifestChunk:
        """Return a chunk, or raise ConfigurationError (the request is wrong)."""
        if index >= len(self.manifest.chunks):
            raise ConfigurationError(
                f"artifact {self.artifact_id} has {len(self.manifest.chunks)} chunks, none is "
                f"number {index}"
            )
        return self.manifest.chunks[index]


class Catalogue:
    """Served artifacts by (mx_source_id, artifact_id). Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._served: dict[tuple[str, str], ServedArtifact] = {}

    def add(self, served: ServedArtifact) -> None:
        """Serve an artifact; ConfigurationError when it is served already."""
        key = (served.mx_source_id, served.artifact_id)
        with self._lock:
            if key in self._served:
                raise ConfigurationError(f"artifact {served.artifact_id} is served already")
            self._served[key] = served

    def remove(self, mx_source_id: str, artifact_id: str) -> ServedArtifact | None:
        """Serve an artifact no longer and return it; None when it was not served."""
        with self._lock:
            return self._served.pop((mx_source_id, artifact_id), None)

    def select(self, mx_source_id: str, artifact_id: str) -> ServedArtifact:
        """Return the artifact with these ids; an empty id fits the only one there is.

        Raises:
            RecordNotFoundError: none fits.
            ConfigurationError: several fit.
        """
        with self._lock:
            fitting = [
                served
                for served in self._served.values()
                if mx_source_id in ("", served.mx_source_id)
                and artifact_id in ("", served.artifact_id)
            ]
        if not fitting:
            raise RecordNotFoundError(
                f"artifact {artifact_id or '(any)'} of source {mx_source_id or '(any)'} is not "
                "served here"
            )
        if len(fitting) > 1:
            raise ConfigurationError(f"{len(fitting)} artifacts fit; name one by its ids")
        return fitting[0]

    def all(self) -> tuple[ServedArtifact, ...]:
        """Return everything that is served."""
        with self._lock:
            return tuple(self._served.values())
