"""Checks a source's claims about an artifact before any byte is requested. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from mx_artifacts.client.worker import ChunkLease
from mx_artifacts.core.digest import crc32c_hex, crc32c_join
from mx_artifacts.core.foreign_text import shown
from mx_artifacts.core.manifest import (
    ArtifactHeader,
    ArtifactManifest,
    ArtifactRef,
    ManifestChunk,
    check_file_table,
    validate_against,
)
from mx_artifacts.errors import ArtifactIdMismatchError, ManifestInvalidError
from mx_artifacts.transport.base import MAX_ADDRESS, RemoteRange


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ManifestInvalidError(shown(message))


def check_header(header: ArtifactHeader, asked: ArtifactRef) -> int:
    """Check a header against itself and against what was asked for.

    Where no artifact id was, it accepts the header's own.

    Returns:
        How many chunks its files need; the chunk table may have no other length.

    Raises:
        ManifestInvalidError, ArtifactIdMismatchError
    """
    _require(
        header.mx_source_id == asked.mx_source_id,
        f"asked for source {asked.mx_source_id}, the header is of {header.mx_source_id!r}",
    )
    if asked.artifact_id and header.artifact_id != asked.artifact_id:
        raise ArtifactIdMismatchError(
            f"the request was for artifact {asked.artifact_id}, but the header is of "
            f"{header.artifact_id!r}"
        )
    implied = check_file_table(header.files, header.chunk_size, header.manifest_version)
    total_size = sum(file.size for file in header.files)
    for name, said, counted in (
        ("files", header.file_count, len(header.files)),
        ("chunks", header.chunk_count, implied),
        ("bytes", header.total_size, total_size),
    ):
        _require(said == counted, f"the header says {said} {name}, its file table {counted}")
    return implied


def check_tables(
    header: ArtifactHeader, chunks: Sequence[ManifestChunk], artifact_id: str
) -> ArtifactManifest:
    """Return the manifest that header and chunk table make.

    Raises:
        ManifestInvalidError: they do not describe one artifact, or a file's checksum is not that
            of its chunks.
        ArtifactIdMismatchError: they hash to another artifact id.
    """
    manifest = ArtifactManifest(
        mx_source_type=header.mx_source_type,
        chunk_size=header.chunk_size,
        files=header.files,
        chunks=tuple(chunks),
        manifest_version=header.manifest_version,
    )
    validate_against(manifest, artifact_id or header.artifact_id)
    _check_file_checksums(manifest)
    return manifest


def _check_file_checksums(manifest: ArtifactManifest) -> None:
    """Join the chunks' checksums to the files': so chunks that verify are files that verify."""
    joined = [0] * len(manifest.files)
    for chunk in manifest.chunks:
        joined[chunk.file_index] = crc32c_join(
            joined[chunk.file_index], int(chunk.checksum, 16), chunk.length
        )
    for file, checksum in zip(manifest.files, joined, strict=True):
        _require(
            file.checksum == crc32c_hex(checksum),
            f"{file.path!r} has the checksum {file.checksum}, its chunks {crc32c_hex(checksum)}",
        )


def check_lease(lease: ChunkLease, chunk: ManifestChunk) -> None:
    """Check that what a source prepared is the chunk that was asked for.

    Raises:
        ManifestInvalidError
    """
    _require(bool(lease.lease_id), f"chunk {chunk.chunk_index} was prepared without a lease")
    _require(
        lease.chunk == chunk,
        f"asked for chunk {chunk.chunk_index}, the source prepared {lease.chunk}",
    )
    _require(
        lease.source.length == chunk.length,
        f"chunk {chunk.chunk_index} has {chunk.length} bytes, the source offers "
        f"{lease.source.length}",
    )
    check_address(lease.source)


def check_address(at: RemoteRange) -> None:
    """Accept leased memory that can exist; ManifestInvalidError for other."""
    _require(at.addr + at.length <= MAX_ADDRESS, f"no memory of {at.length} bytes is at {at.addr}")
