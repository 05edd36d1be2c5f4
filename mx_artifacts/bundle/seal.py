"""Seals bundles into an artifact: checksums each once, and builds the manifest."""

from __future__ import annotations

from collections.abc import Mapping

from mx_artifacts.bundle.memory import BundleMemory
from mx_artifacts.core.chunks import MAX_CHUNK_SIZE_BYTES, expected_chunks
from mx_artifacts.core.digest import crc32c, crc32c_hex, crc32c_join
from mx_artifacts.core.identity import SourceType
from mx_artifacts.core.manifest import ArtifactManifest, ManifestChunk, ManifestFile, validate
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.runtime.threads import for_each


def seal(
    bundles: Mapping[str, BundleMemory], source_type: SourceType, chunk_size: int
) -> ArtifactManifest:
    """Return the manifest of an artifact made of `bundles`: logical manifest path -> its bytes.

    The bundles must not change from here on. `chunk_size` is in bytes.

    Raises:
        ConfigurationError: the chunk size is out of bounds.
        ManifestInvalidError: a manifest path is not absolute and normalised, or there are no
            bundles or too many chunks.
    """
    if not 0 < chunk_size <= MAX_CHUNK_SIZE_BYTES:
        raise ConfigurationError(
            f"chunk size {chunk_size} is not in 1..{MAX_CHUNK_SIZE_BYTES} bytes",
            hint="use the default of --chunk-size",
        )
    paths = sorted(bundles)
    sizes = [len(bundles[path].view) for path in paths]
    ranges = list(expected_chunks(sizes, chunk_size))
    checksums = [0] * len(ranges)

    def checksum(chunk: tuple[int, int, int, int]) -> None:
        index, file_index, offset, length = chunk
        bundle = bundles[paths[file_index]]
        checksums[index] = crc32c(bundle.view[offset : offset + length])
        bundle.written(offset, length)  # reading has brought it back into memory

    for_each(ranges, checksum, "mx-seal")
    whole = [0] * len(paths)
    for index, file_index, _, length in ranges:
        whole[file_index] = crc32c_join(whole[file_index], checksums[index], length)
    manifest = ArtifactManifest(
        source_type,
        chunk_size,
        tuple(
            ManifestFile(index, path, sizes[index], crc32c_hex(whole[index]))
            for index, path in enumerate(paths)
        ),
        tuple(ManifestChunk(*chunk, crc32c_hex(checksums[chunk[0]])) for chunk in ranges),
    )
    validate(manifest)
    return manifest
