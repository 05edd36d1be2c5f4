"""The sealed bundles of an artifact, as a source reads them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from mx_artifacts.core.digest import crc32c, crc32c_hex
from mx_artifacts.core.manifest import ArtifactManifest, ManifestChunk
from mx_artifacts.errors import BundleError, ChunkChecksumError, ConfigurationError


class BundleFiles:
    """The open bundle files of an artifact; a replaced or removed path does not matter."""

    def __init__(self, manifest: ArtifactManifest, files: Mapping[str, Path]) -> None:
        self._paths = [files.get(file.path) for file in manifest.files]
        self._descriptors: list[int] = []
        try:
            for file, path in zip(manifest.files, self._paths, strict=True):
                if path is None:
                    raise ConfigurationError(f"no bundle was given for {file.path!r}")
                self._descriptors.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            self.close()
            raise BundleError(f"cannot open bundle {path}: {error.strerror}") from error
        except ConfigurationError:
            self.close()
            raise

    def read_into(self, chunk: ManifestChunk, target: memoryview) -> None:
        """Read `chunk` into `target`, which is as long, and verify it."""
        path = self._paths[chunk.file_index]
        descriptor, offset, rest = self._descriptors[chunk.file_index], chunk.file_offset, target
        try:
            while rest:
                count = os.preadv(descriptor, [rest], offset)
                if count == 0:
                    break
                rest, offset = rest[count:], offset + count
        except OSError as error:
            raise BundleError(f"cannot read bundle {path}: {error.strerror}") from error
        if rest or crc32c_hex(crc32c(target)) != chunk.checksum:
            raise ChunkChecksumError(
                f"bundle {path} changed after it was sealed, at {chunk.file_offset}",
                hint="restart the publisher; nothing may write to its bundles",
            )

    def close(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())
