"""Where an artifact's bytes go: what a transfer asks of whoever wants it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from mx_artifacts.core.manifest import ArtifactManifest, ManifestChunk


class Receiver(Protocol):
    """Takes verified chunks, in any order and from any thread, each once."""

    def begin(self, manifest: ArtifactManifest) -> Collection[int]:
        """Hear what will come, before a byte is asked for; return which files are wanted.

        Raises MxArtifactsError to refuse it.
        """
        ...

    def write(self, chunk: ManifestChunk, data: memoryview) -> None:
        """Take a chunk; `data` is used again when this returns. May wait for earlier chunks.

        Raises WorkStopped when there is no point in it any more, MxArtifactsError otherwise.
        """
        ...

    def stop(self) -> None:
        """Let those who wait in `write` fail: no more chunks come. Idempotent, any thread."""
        ...

    def finish(self) -> None:
        """Hear that all wanted chunks came."""
        ...
