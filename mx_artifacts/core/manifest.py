"""The artifact manifest: file and chunk tables, their validity, and the artifact id."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import zip_longest

from mx_artifacts.core.canonical import canonical_json
from mx_artifacts.core.chunks import MAX_CHUNK_SIZE_BYTES, chunk_count, expected_chunks
from mx_artifacts.core.digest import sha256_hex
from mx_artifacts.core.foreign_text import shown
from mx_artifacts.core.identity import SourceType
from mx_artifacts.errors import ArtifactIdMismatchError, ManifestInvalidError

MANIFEST_VERSION = 1
MAX_FILES = 4096
"""Bundles in one artifact; a kind has a handful, so more is damage or an attack."""
MAX_CHUNKS = 1 << 18
"""Maximum number of chunks in one artifact, 16 TiB of the default size. A target holds the table
before it can know whether it hashes to the artifact id: this keeps a forged one below 128 MiB."""

_CHECKSUM = re.compile(r"[0-9a-f]{8}")


@dataclass(frozen=True)
class ManifestFile:
    """One bundle. `path` is logical and absolute; `checksum` is CRC32C in hex."""

    file_index: int
    path: str
    size: int
    checksum: str


@dataclass(frozen=True, slots=True)
class ManifestChunk:
    """A byte range of one bundle, never empty."""

    chunk_index: int
    file_index: int
    file_offset: int
    length: int
    checksum: str


@dataclass(frozen=True)
class ArtifactManifest:
    """A sealed artifact's tables. Build with `build_manifest`, or `validate` what was received."""

    mx_source_type: SourceType
    chunk_size: int
    files: tuple[ManifestFile, ...]
    chunks: tuple[ManifestChunk, ...]
    manifest_version: int = MANIFEST_VERSION

    @property
    def total_size(self) -> int:
        """Sum of the bundles' sizes [bytes]."""
        return sum(f.size for f in self.files)

    @cached_property
    def artifact_id(self) -> str:
        """SHA-256 over the manifest's JSON, keys in wire order; 64 hex characters."""
        document = {
            "manifest_version": self.manifest_version,
            "mx_source_type": int(self.mx_source_type),
            "chunk_size": self.chunk_size,
            "files": [asdict(f) for f in self.files],
            "chunks": [asdict(c) for c in self.chunks],
        }
        return sha256_hex(canonical_json(document, sort_keys=False, escape_non_ascii=False))


@dataclass(frozen=True)
class ArtifactRef:
    """One artifact of one source, as a worker is asked for it.

    An empty `artifact_id` means the only artifact that the source serves.
    """

    mx_source_id: str
    artifact_id: str = ""


@dataclass(frozen=True)
class ArtifactHeader:
    """What a source says of an artifact before its chunk table: all of it unchecked claims."""

    mx_source_id: str
    artifact_id: str
    mx_source_type: SourceType
    total_size: int
    file_count: int
    chunk_count: int
    chunk_size: int
    files: tuple[ManifestFile, ...]
    manifest_version: int = MANIFEST_VERSION
    metadata_endpoint: str = ""
    agent_name: str = ""
    worker_rank: int = 0


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ManifestInvalidError(shown(message))


def check_manifest_path(path: str) -> None:
    """Accept an absolute, normalised, "/"-separated path.

    Raises:
        ManifestInvalidError: it has an empty, "." or ".." part, a NUL, or is relative.
    """
    parts = path.split("/")
    _require(
        len(parts) > 1
        and parts[0] == ""
        and "\0" not in path
        and all(part not in ("", ".", "..") for part in parts[1:]),
        f"manifest path {path!r} is not absolute and normalised",
    )


def check_file_table(
    files: Sequence[ManifestFile], chunk_size: int, manifest_version: int = MANIFEST_VERSION
) -> int:
    """Check version, chunk size and file table; return how many chunks they imply.

    Raises:
        ManifestInvalidError: naming the first rule that does not hold.
    """
    _require(
        manifest_version == MANIFEST_VERSION,
        f"manifest version {manifest_version} is not {MANIFEST_VERSION}",
    )
    _require(
        0 < chunk_size <= MAX_CHUNK_SIZE_BYTES,
        f"chunk size {chunk_size} is not in 1..{MAX_CHUNK_SIZE_BYTES} bytes",
    )
    _require(0 < len(files) <= MAX_FILES, f"{len(files)} files are not in 1..{MAX_FILES}")
    previous = ""
    for position, file in enumerate(files):
        _require(
            file.file_index == position, f"file {position} carries the index {file.file_index}"
        )
        check_manifest_path(file.path)
        _require(file.path > previous, f"file table is not sorted at {file.path!r}")
        _require(file.size >= 0, f"{file.path!r} has a negative size")
        _require(
            _CHECKSUM.fullmatch(file.checksum) is not None,
            f"{file.path!r} has the malformed checksum {file.checksum!r}",
        )
        previous = file.path
    implied = sum(chunk_count(f.size, chunk_size) for f in files)
    _require(implied <= MAX_CHUNKS, f"{implied} chunks are more than {MAX_CHUNKS}")
    return implied


def validate(manifest: ArtifactManifest) -> None:
    """Check that the tables describe one artifact without holes, overlaps or repeats.

    Raises:
        ManifestInvalidError: naming the first rule that does not hold.
    """
    implied = check_file_table(manifest.files, manifest.chunk_size, manifest.manifest_version)
    _require(
        len(manifest.chunks) == implied,
        f"chunk table has {len(manifest.chunks)} chunks, the files need {implied}",
    )
    sizes = [f.size for f in manifest.files]
    wanted = expected_chunks(sizes, manifest.chunk_size)
    for chunk, expected in zip_longest(manifest.chunks, wanted):
        got = (chunk.chunk_index, chunk.file_index, chunk.file_offset, chunk.length)
        _require(got == expected, f"chunk (index, file, offset, length) {got} should be {expected}")
        _require(
            _CHECKSUM.fullmatch(chunk.checksum) is not None,
            f"chunk {chunk.chunk_index} has the malformed checksum {chunk.checksum!r}",
        )


def validate_against(manifest: ArtifactManifest, artifact_id: str) -> None:
    """Validate the tables, then check that they hash to `artifact_id`.

    Raises:
        ManifestInvalidError, ArtifactIdMismatchError
    """
    validate(manifest)
    if manifest.artifact_id != artifact_id:
        raise ArtifactIdMismatchError(
            f"manifest hashes to {manifest.artifact_id}, but the artifact was announced as "
            f"{artifact_id}"
        )
