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
        """Hear what there is, before a byte is asked for; return what is wanted of it.

        `maps` has every bundle's, by file index, or none where no source tells: then only whole
        chunks can be wanted, since nothing smaller can be verified.

        Raises MxArtifactsError to refuse it.
        """
        ...

    def write(self, span: Span, data: memoryview) -> None:
        """Take a span; `data` is used again when this returns. May wait for earlier chunks.

        Raises WorkStopped when there is no point in it any more, MxArtifactsError otherwise.
        """
        ...

    def stop(self) -> None:
        """Let those who wait in `write` fail: no more comes. Idempotent, any thread."""
        ...

    def finish(self) -> None:
        """Hear that all that was wanted came."""
        ...
