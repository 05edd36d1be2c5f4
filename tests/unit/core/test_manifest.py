"""Manifest tables: the worked example of wire.md, and every rule that a damaged table breaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mx_artifacts.core.chunks import chunk_count, expected_chunks, file_ranges
from mx_artifacts.core.digest import crc32c, crc32c_hex
from mx_artifacts.core.identity import SourceType
from mx_artifacts.core.manifest import (
    ArtifactManifest,
    ManifestChunk,
    ManifestFile,
    validate,
    validate_against,
)
from mx_artifacts.errors import ArtifactIdMismatchError, ManifestInvalidError


def manifest_of(contents: dict[str, bytes], chunk_size: int) -> ArtifactManifest:
    """Seal `contents` in memory."""
    files = tuple(
        ManifestFile(i, path, len(data), crc32c_hex(crc32c(data)))
        for i, (path, data) in enumerate(sorted(contents.items()))
    )
    data = [contents[f.path] for f in files]
    chunks = tuple(
        ManifestChunk(i, f, o, n, crc32c_hex(crc32c(data[f][o : o + n])))
        for i, f, o, n in expected_chunks([f.size for f in files], chunk_size)
    )
    return ArtifactManifest(SourceType.TRITON_CACHE, chunk_size, files, chunks)


HELLO = manifest_of({"/bundle/artifact.tar": b"hello world!"}, 5)
TWO = manifest_of({"/b/artifact.tar": b"0123456789", "/b/autotune.tar": b"abc", "/b/z": b""}, 4)


def test_worked_example() -> None:
    assert HELLO.files[0].checksum == "49cb5777"
    assert [c.checksum for c in HELLO.chunks] == ["9a71bb4c", "0c241843", "eda13ed5"]
    validate_against(HELLO, "04bb8886bbe37dc167ec6aa05c6c9c30918f9c2be00502525e7164b3723cbc00")


def test_another_id_is_refused() -> None:
    with pytest.raises(ArtifactIdMismatchError):
        validate_against(HELLO, "0" * 64)


def _chunk(index: int, **changes: object) -> Callable[[ArtifactManifest], ArtifactManifest]:
    def change(m: ArtifactManifest) -> ArtifactManifest:
        chunks = list(m.chunks)
        chunks[index] = replace(chunks[index], **changes)  # type: ignore[arg-type]
        return replace(m, chunks=tuple(chunks))

    return change


def _file(index: int, **changes: object) -> Callable[[ArtifactManifest], ArtifactManifest]:
    def change(m: ArtifactManifest) -> ArtifactManifest:
        files = list(m.files)
        files[index] = replace(files[index], **changes)  # type: ignore[arg-type]
        return replace(m, files=tuple(files))

    return change


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda m: replace(m, chunks=m.chunks[:-1]), id="missing last chunk"),
        pytest.param(lambda m: replace(m, chunks=m.chunks[:1] + m.chunks[2:]), id="hole"),
        pytest.param(lambda m: replace(m, chunks=m.chunks[:2] + m.chunks[1:]), id="repeat"),
        pytest.param(lambda m: replace(m, chunks=m.chunks[::-1]), id="backwards"),
        pytest.param(_chunk(1, file_offset=3), id="overlap"),
        pytest.param(_chunk(1, length=3), id="short chunk"),
        pytest.param(_chunk(1, length=0), id="empty chunk"),
        pytest.param(_chunk(1, chunk_index=7), id="wrong index"),
        pytest.param(_chunk(1, file_index=1), id="wrong file"),
        pytest.param(_chunk(0, checksum="XYZ"), id="malformed checksum"),
        pytest.param(_file(0, size=11), id="file grew"),
        pytest.param(_file(0, size=-1), id="negative size"),
        pytest.param(_file(0, file_index=1), id="file index"),
        pytest.param(_file(0, checksum="49CB5777"), id="upper-case checksum"),
        pytest.param(_file(0, path="b/artifact.tar"), id="relative path"),
        pytest.param(_file(0, path="/b/../artifact.tar"), id="dot-dot"),
        pytest.param(_file(0, path="/b//artifact.tar"), id="empty part"),
        pytest.param(_file(0, path="/b/./artifact.tar"), id="dot"),
        pytest.param(_file(0, path="/z/artifact.tar"), id="not sorted"),
        pytest.param(_file(1, path="/b/artifact.tar"), id="same path twice"),
        pytest.param(lambda m: replace(m, chunk_size=0), id="chunk size 0"),
        pytest.param(lambda m: replace(m, chunk_size=5 << 30), id="chunk size 5 GiB"),
        pytest.param(lambda m: replace(m, manifest_version=2), id="version"),
        pytest.param(lambda m: replace(m, files=(), chunks=()), id="no files"),
        pytest.param(_file(0, size=1 << 62), id="size that needs 2**60 chunks"),
    ],
)
def test_damaged_tables_are_refused(
    damage: Callable[[ArtifactManifest], ArtifactManifest],
) -> None:
    validate(TWO)
    with pytest.raises(ManifestInvalidError):
        validate(damage(TWO))


@given(st.integers(0, 10_000), st.integers(1, 500))
def test_ranges_tile_the_file(size: int, chunk_size: int) -> None:
    ranges = list(file_ranges(size, chunk_size))
    assert len(ranges) == chunk_count(size, chunk_size)
    position = 0
    for offset, length in ranges:
        assert offset == position
        assert 0 < length <= chunk_size
        position += length
    assert position == size
    assert all(length == chunk_size for _, length in ranges[:-1])


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=6), st.integers(1, 16))
def test_a_sealed_manifest_is_valid_and_any_byte_changes_its_id(
    contents: list[bytes], chunk_size: int
) -> None:
    named = {f"/b/{i:02}.tar": data for i, data in enumerate(contents)}
    manifest = manifest_of(named, chunk_size)
    validate_against(manifest, manifest.artifact_id)
    changed = manifest_of(named | {"/b/00.tar": contents[0] + b"!"}, chunk_size)
    assert changed.artifact_id != manifest.artifact_id
