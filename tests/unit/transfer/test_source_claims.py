"""Header and chunk tables that do not describe one artifact are refused, whatever is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mx_artifacts.client.worker import ChunkLease
from mx_artifacts.core.manifest import ArtifactRef, ManifestChunk
from mx_artifacts.errors import ArtifactIdMismatchError, ManifestInvalidError
from mx_artifacts.transfer.artifact.source_claims import check_header, check_lease, check_tables
from mx_artifacts.transport.base import RemoteRange
from tests.support.artifacts import (
    CHUNK_SIZE,
    SOURCE_ID,
    SealedArtifact,
    make_artifact,
)

Chunks = tuple[ManifestChunk, ...]


@pytest.fixture
def artifact(tmp_path: Path) -> SealedArtifact:
    return make_artifact({"artifact.tar": 2 * CHUNK_SIZE + 5, "autotune.tar": 7})


def test_honest_tables_become_the_manifest(artifact: SealedArtifact) -> None:
    header = artifact.header()
    assert check_header(header, artifact.ref) == 4
    assert check_tables(header, artifact.manifest.chunks, artifact.artifact_id) == artifact.manifest


def test_an_empty_id_means_the_id_of_the_source_which_is_still_checked(
    artifact: SealedArtifact,
) -> None:
    header = artifact.header()
    check_header(header, ArtifactRef(SOURCE_ID, ""))
    assert check_tables(header, artifact.manifest.chunks, "") == artifact.manifest
    with pytest.raises(ArtifactIdMismatchError):
        check_tables(artifact.header(artifact_id="0" * 64), artifact.manifest.chunks, "")


@pytest.mark.parametrize(
    "changes",
    [
        {"mx_source_id": "ffffffffffffffff"},
        {"file_count": 3},
        {"chunk_count": 3},
        {"chunk_count": 1 << 31},
        {"total_size": 1},
        {"chunk_size": 0},
        {"chunk_size": CHUNK_SIZE // 2},
        {"chunk_size": 1 << 33},
        {"manifest_version": 2},
        {"files": ()},
    ],
    ids=str,
)
def test_header_that_disagrees_is_refused(
    artifact: SealedArtifact, changes: dict[str, Any]
) -> None:
    with pytest.raises(ManifestInvalidError):
        check_header(artifact.header(**changes), artifact.ref)


def test_header_of_another_artifact_is_refused(artifact: SealedArtifact) -> None:
    with pytest.raises(ArtifactIdMismatchError, match="the request was for artifact"):
        check_header(artifact.header(artifact_id="0" * 64), artifact.ref)


def _changed(index: int, **changes: Any) -> Callable[[Chunks], Chunks]:
    def change(chunks: Chunks) -> Chunks:
        return (*chunks[:index], replace(chunks[index], **changes), *chunks[index + 1 :])

    return change


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda c: c[:1] + c[2:], id="hole"),
        pytest.param(lambda c: c[:-1], id="last missing"),
        pytest.param(lambda c: (*c, c[-1]), id="one too many"),
        pytest.param(lambda c: (c[0], c[0], *c[2:]), id="repeat"),
        pytest.param(lambda c: (c[1], c[0], *c[2:]), id="swapped"),
        pytest.param(lambda c: (), id="empty"),
        pytest.param(_changed(1, file_offset=CHUNK_SIZE - 1), id="overlap"),
        pytest.param(_changed(1, file_offset=CHUNK_SIZE + 1), id="gap"),
        pytest.param(_changed(0, length=CHUNK_SIZE - 1), id="short"),
        pytest.param(_changed(2, length=6), id="beyond the file"),
        pytest.param(_changed(2, length=0), id="empty chunk"),
        pytest.param(_changed(3, file_index=0), id="wrong file"),
        pytest.param(_changed(3, file_index=9), id="no such file"),
        pytest.param(_changed(0, checksum="0"), id="malformed checksum"),
        pytest.param(_changed(0, checksum="0000000G"), id="not hex"),
    ],
)
def test_damaged_chunk_tables_are_refused(
    artifact: SealedArtifact, damage: Callable[[Chunks], Chunks]
) -> None:
    with pytest.raises(ManifestInvalidError):
        check_tables(artifact.header(), damage(artifact.manifest.chunks), artifact.artifact_id)


def test_other_checksums_are_another_artifact(artifact: SealedArtifact) -> None:
    chunks = _changed(0, checksum="00000000")(artifact.manifest.chunks)
    with pytest.raises(ArtifactIdMismatchError):
        check_tables(artifact.header(), chunks, artifact.artifact_id)


def test_a_file_checksum_that_its_chunks_do_not_make_is_refused(artifact: SealedArtifact) -> None:
    dishonest = replace(artifact.manifest.files[0], checksum="00000000")
    manifest = replace(artifact.manifest, files=(dishonest, artifact.manifest.files[1]))
    header = artifact.header(files=manifest.files, artifact_id=manifest.artifact_id)
    with pytest.raises(ManifestInvalidError, match="its chunks"):
        check_tables(header, manifest.chunks, manifest.artifact_id)


@pytest.mark.parametrize("what", ["other chunk", "checksum", "length", "no lease"])
def test_a_lease_of_something_else_is_refused(artifact: SealedArtifact, what: str) -> None:
    chunk = artifact.manifest.chunks[0]
    honest = ChunkLease("id", chunk, RemoteRange(4096, chunk.length), b"agent")
    check_lease(honest, chunk)
    wrong = {
        "other chunk": replace(honest, chunk=artifact.manifest.chunks[1]),
        "checksum": replace(honest, chunk=replace(chunk, checksum="00000000")),
        "length": replace(honest, source=RemoteRange(4096, chunk.length - 1)),
        "no lease": replace(honest, lease_id=""),
    }
    with pytest.raises(ManifestInvalidError):
        check_lease(wrong[what], chunk)
