"""The receiver of an artifact's bytes: what a transfer needs from its caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from mx_artifacts.bundle.index import BundleMap
from mx_artifacts.bundle.spans import Span
from mx_artifacts.core.manifest import ArtifactManifest


class Receiver(Protocol):
    """Takes verified spans, in any order and from any thread, each once."""

    @property
    def waits(self) -> bool:
        """Whether `write` waits, as for a disk, while others could use the core. After `begin`."""
        ...

    def begin(self, manifest: ArtifactManifest, maps: Mapping[int, BundleMap]) -> Sequence[Span]:
        """Called with the tables before any byte is requested; return the wanted parts.

        `maps` has the map of every bundle by file index, or is empty if no source has a member
        index. Then only whole chunks can be wanted, because smaller parts cannot be verified.

        Raise MxArtifactsError to refuse the artifact.
        """
        ...

    def write(self, span: Span, data: memoryview) -> None:
        """Take a span; `data` is used again when this returns. May wait for earlier chunks.

        Raises WorkStopped when there is no point in it any more, MxArtifactsError otherwise.
        """
        ...

    def stop(self) -> None:
        """Make waiting calls of `write` fail: no more bytes arrive. Idempotent, any thread."""
        ...

    def finish(self) -> None:
        """Called when all wanted parts have arrived."""
        ...
