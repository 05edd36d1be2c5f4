"""Brings an artifact's bundles to the roots that they are for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from mx_artifacts.core.identity import SourceType
from mx_artifacts.core.manifest import ArtifactManifest, ManifestChunk, ManifestFile
from mx_artifacts.errors import ManifestInvalidError
from mx_artifacts.install.base import RootInstall
from mx_artifacts.install.installer import require_distinct
from mx_artifacts.install.staging import Staging
from mx_artifacts.kinds.registry import name_of_type


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
        self._by_file: dict[int, Staging] = {}
        self.stagings: tuple[Staging, ...] = ()

    def begin(self, manifest: ArtifactManifest) -> Collection[int]:
        """Make a place for every bundle.

        Raises:
            ManifestInvalidError: a bundle belongs to no root, or a root has no bundle.
            ConfigurationError: two roots are one directory.
            UnusablePlaceError, UnsafePathError, NoSpaceError, InstallError: see `Staging`.
        """
        pairs = self._pair(manifest)
        require_distinct([install.root for install, _ in pairs])
        for install, file in pairs:
            staging = Staging(install, file.size)
            self.stagings += (staging,)
            self._by_file[file.file_index] = staging
        return self._by_file.keys()

    def write(self, chunk: ManifestChunk, data: memoryview) -> None:
        self._by_file[chunk.file_index].write(chunk.file_offset, data)

    def stop(self) -> None:
        for staging in self.stagings:
            staging.stop()

    def finish(self) -> None:
        for staging in self.stagings:
            staging.finish_writing()

    def close(self) -> None:
        """Remove what is staged. Idempotent."""
        for staging in self.stagings:
            staging.close()

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
                raise ManifestInvalidError(f"the artifact has two bundles {name!r}")
            files[name] = file
        pairs = []
        for bundle in self._wanted:
            found = files.pop(bundle.name, None)
            if found is not None and bundle.install is not None:
                pairs.append((bundle.install, found))
            elif found is None and not bundle.optional:
                raise ManifestInvalidError(f"the artifact lacks {bundle.name}")
        if files:
            raise ManifestInvalidError(
                f"the artifact holds {sorted(files)}, which belongs to no root of its kind here"
            )
        return pairs
