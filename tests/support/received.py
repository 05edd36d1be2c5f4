"""A receiver that keeps what arrives in memory."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from mx_artifacts.core.manifest import ArtifactManifest, ManifestChunk
from mx_artifacts.transfer.engine import fetch_artifact
from mx_artifacts.transport.base import Transport
from tests.support.artifacts import SOURCE_ID


class Received:
    """An artifact as it arrived; whole when `finished`."""

    def __init__(self) -> None:
        self.manifest: ArtifactManifest | None = None
        self.finished = False
        self.stopped = False
        self._bundles: list[bytearray] = []

    @property
    def content(self) -> dict[str, bytes]:
        """The bundles by manifest path."""
        assert self.manifest is not None
        paths = [file.path for file in self.manifest.files]
        return dict(zip(paths, map(bytes, self._bundles), strict=True))

    def begin(self, manifest: ArtifactManifest) -> Collection[int]:
        self.manifest = manifest
        self._bundles = [bytearray(file.size) for file in manifest.files]
        return range(len(manifest.files))

    def write(self, chunk: ManifestChunk, data: memoryview) -> None:
        assert not self.finished
        bundle = self._bundles[chunk.file_index]
        bundle[chunk.file_offset : chunk.file_offset + chunk.length] = data

    def stop(self) -> None:
        self.stopped = True

    def finish(self) -> None:
        self.finished = True


def fetch(
    endpoint: str,
    artifact_id: str,
    transport: Transport,
    receiver: Received | None = None,
    **options: Any,
) -> Received:
    """Fetch an artifact of the tests' source."""
    receiver = receiver or Received()
    settings = {"timeout_seconds": 60, "max_inflight_chunks": 3, **options}
    fetch_artifact(endpoint, SOURCE_ID, artifact_id, transport, receiver, **settings)
    return receiver
