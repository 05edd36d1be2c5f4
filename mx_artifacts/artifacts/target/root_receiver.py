"""Receives the bundles of an artifact into their cache roots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mx_artifacts.bundle.index import BundleMap
from mx_artifacts.bundle.spans import Span, span_of_chunk, spans_of
from mx_artifacts.core.foreign_text import shown
from mx_artifacts.core.identity import SourceType
from mx_artifacts.core.manifest import ArtifactManifest, ManifestFile
from mx_artifacts.errors import ManifestInvalidError
from mx_artifacts.install.base import RootInstall
from mx_artifacts.install.installer import require_distinct
from mx_artifacts.install.staging.staging import Staging
from mx_artifacts.install.state.previous_installs import PreviousInstalls
from mx_artifacts.kinds.registry import name_of_type
from mx_artifacts.runtime.gc_pause import gc_paused


@dataclass(frozen=True)
class WantedBundle:
    """A bundle by its name (the last part of its manifest path), and what becomes of it.

    One without `install` is not asked for.
    """

    name: str
    optional: bool
    install: RootInstall | None


class RootReceiver:
    """A `Receiver` that stages each bundle for its root; `stagings` are the caller's to close."""

    def __init__(self, wanted: Sequence[WantedBundle], source_type: SourceType) -> None:
        self._wanted = wanted
        self._source_type = source_type
        self._earlier = PreviousInstalls([each.install for each in wanted if each.install])
        self._by_file: dict[int, Staging] = {}
        self.stagings: tuple[Staging, ...] = ()

    @property
    def waits(self) -> bool:
        return not all(staging.in_memory for staging in self.stagings)

    @gc_paused()
    def begin(self, manifest: ArtifactManifest, maps: Mapping[int, BundleMap]) -> Sequence[Span]:
        """Make a place for every bundle; return what must come of them.

        Raises:
            ManifestInvalidError: a bundle belongs to no root, or a root has no bundle.
            ConfigurationError: two roots are one directory.
            UnusablePlaceError, UnsafePathError, NoSpaceError, InstallError: see `Staging`.
        """
        pairs = self._pair(manifest)
        require_distinct([install.root for install, _ in pairs])
        spans: list[Span] = []
        for install, file in pairs:
            staging = Staging(install, file.size, maps.get(file.file_index), self._earlier)
            self.stagings += (staging,)
            self._by_file[file.file_index] = staging
            if maps:
                spans += spans_of(file.file_index, staging.expect(), file.size)
        if maps:
            return spans
        return [span_of_chunk(c) for c in manifest.chunks if c.file_index in self._by_file]

    def write(self, span: Span, data: memoryview) -> None:
        staging = self._by_file[span.file_index]
        if span.chunk is not None:
            staging.write(span.offset, data)
        else:
            staging.write_span(span, data)

    def stop(self) -> None:
        for staging in self.stagings:
            staging.stop()

    def finish(self) -> None:
        for staging in self.stagings:
            staging.finish_writing()

    def close(self, *, keep: bool = False) -> None:
        """Remove what is staged, or `keep` it for the next fetch. Idempotent."""
        for staging in self.stagings:
            staging.close(keep=keep)

    def _pair(self, manifest: ArtifactManifest) -> list[tuple[RootInstall, ManifestFile]]:
        if manifest.mx_source_type is not self._source_type:
            raise ManifestInvalidError(
                f"the artifact is of kind {name_of_type(manifest.mx_source_type)}, not "
                f"{name_of_type(self._source_type)}"
            )
        files: dict[str, ManifestFile] = {}
        for file in manifest.files:
            name = file.path.rpartition("/")[2]
            if name in files:
                raise ManifestInvalidError(f"the artifact has two bundles '{shown(name)}'")
            files[name] = file
        pairs = []
        for bundle in self._wanted:
            found = files.pop(bundle.name, None)
            if found is not None and bundle.install is not None:
                pairs.append((bundle.install, found))
            elif found is None and not bundle.optional:
                raise ManifestInvalidError(f"the artifact has no bundle {bundle.name}")
        if files:
            raise ManifestInvalidError(
                f"the artifact has the bundles {sorted(files)}, which belong to no root of this "
                "kind on this node"
            )
        return pairs
