"""Seal bundles into an artifact: hash each once, and build the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mx_artifacts.core.chunks import MAX_CHUNK_SIZE_BYTES, file_ranges
from mx_artifacts.core.digest import crc32c, crc32c_hex
from mx_artifacts.core.identity import SourceType
from mx_artifacts.core.manifest import ArtifactManifest, ManifestChunk, ManifestFile, validate
from mx_artifacts.errors import BundleError, ConfigurationError

_BLOCK_BYTES = 1024 * 1024


def seal(bundles: Mapping[str, Path], source_type: SourceType, chunk_size: int) -> ArtifactManifest:
    """Return the manifest of an artifact made of `bundles`: logical manifest path -> bundle file.

    Each file is read once, in blocks of 1 MiB whatever the `chunk_size` [bytes]. The bundles
    must not change from here on.

    Raises:
        ConfigurationError: the chunk size is out of bounds.
        ManifestInvalidError: a manifest path is not absolute and normalised, or there are no
            bundles or too many chunks.
        BundleError: a bundle cannot be read or changes meanwhile.
    """
    if not 0 < chunk_size <= MAX_CHUNK_SIZE_BYTES:
        raise ConfigurationError(
            f"chunk size {chunk_size} is not in 1..{MAX_CHUNK_SIZE_BYTES} bytes",
            hint="leave --chunk-size at its default",
        )
    files: list[ManifestFile] = []
    chunks: list[ManifestChunk] = []
    for file_index, path in enumerate(sorted(bundles)):
        try:
            file = _seal_file(file_index, path, bundles[path], chunk_size, chunks)
        except OSError as error:
            raise BundleError(
                f"bundle {bundles[path]} cannot be read ({error.strerror})"
            ) from error
        files.append(file)
    manifest = ArtifactManifest(source_type, chunk_size, tuple(files), tuple(chunks))
    validate(manifest)
    return manifest


def _seal_file(
    file_index: int, path: str, bundle: Path, chunk_size: int, chunks: list[ManifestChunk]
) -> ManifestFile:
    """Hash one bundle, appending its chunks to `chunks`."""
    block = memoryview(bytearray(_BLOCK_BYTES))
    file_checksum = 0
    with open(bundle, "rb", buffering=0) as file:
        size = file.seek(0, 2)
        file.seek(0)
        for offset, length in file_ranges(size, chunk_size):
            chunk_checksum = 0
            left = length
            while left:
                count = file.readinto(block[: min(left, _BLOCK_BYTES)])
                if not count:
                    raise BundleError(f"bundle {bundle} became shorter while it was sealed")
                chunk_checksum = crc32c(block[:count], chunk_checksum)
                file_checksum = crc32c(block[:count], file_checksum)
                left -= count
            chunks.append(
                ManifestChunk(len(chunks), file_index, offset, length, crc32c_hex(chunk_checksum))
            )
        if file.read(1):
            raise BundleError(f"bundle {bundle} became longer while it was sealed")
    return ManifestFile(file_index, path, size, crc32c_hex(file_checksum))
