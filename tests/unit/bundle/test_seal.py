from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mx_artifacts.bundle.seal import seal
from mx_artifacts.core.chunks import expected_chunks
from mx_artifacts.core.digest import crc32c, crc32c_hex
from mx_artifacts.core.identity import SourceType
from mx_artifacts.core.manifest import validate_against
from mx_artifacts.errors import ConfigurationError, ManifestInvalidError
from tests.support.artifacts import in_memory_or_file


def test_the_worked_example_of_the_wire_facts() -> None:
    bundles = {"/bundle/artifact.tar": in_memory_or_file(b"hello world!")}
    manifest = seal(bundles, SourceType.TRITON_CACHE, 5)
    assert manifest.files[0].checksum == "49cb5777"
    assert [chunk.checksum for chunk in manifest.chunks] == ["9a71bb4c", "0c241843", "eda13ed5"]
    assert manifest.artifact_id == (
        "04bb8886bbe37dc167ec6aa05c6c9c30918f9c2be00502525e7164b3723cbc00"
    )


@given(
    contents=st.dictionaries(
        st.sampled_from(["/a.tar", "/b/artifact.tar", "/b.tar", "/z/é.tar"]),
        st.binary(max_size=300),
        min_size=1,
    ),
    chunk_size=st.integers(1, 400),
)
def test_tables_are_those_of_the_chunk_arithmetic(
    contents: dict[str, bytes], chunk_size: int
) -> None:
    bundles = {path: in_memory_or_file(content) for path, content in contents.items()}
    manifest = seal(bundles, SourceType.TILELANG_CACHE, chunk_size)

    validate_against(manifest, manifest.artifact_id)
    paths = sorted(contents)
    assert [file.path for file in manifest.files] == paths
    assert [file.checksum for file in manifest.files] == [
        crc32c_hex(crc32c(contents[path])) for path in paths
    ]
    sizes = [len(contents[path]) for path in paths]
    expected = list(expected_chunks(sizes, chunk_size))
    assert [
        (chunk.chunk_index, chunk.file_index, chunk.file_offset, chunk.length)
        for chunk in manifest.chunks
    ] == expected
    for chunk, (_, file_index, offset, length) in zip(manifest.chunks, expected, strict=True):
        part = contents[paths[file_index]][offset : offset + length]
        assert chunk.checksum == crc32c_hex(crc32c(part))


def test_a_bundle_in_a_file(tmp_path: Path) -> None:
    content = bytes(range(256)) * (10 * 1024)  # 2.5 MiB
    bundles = {"/b": in_memory_or_file(content, tmp_path)}
    manifest = seal(bundles, SourceType.TRITON_CACHE, 2 << 20)
    assert manifest.files[0].checksum == crc32c_hex(crc32c(content))
    assert [chunk.checksum for chunk in manifest.chunks] == [
        crc32c_hex(crc32c(content[: 2 << 20])),
        crc32c_hex(crc32c(content[2 << 20 :])),
    ]
    bundles["/b"].close()


@pytest.mark.parametrize("chunk_size", [0, -1, (4 << 30) + 1])
def test_chunk_sizes_out_of_bounds(chunk_size: int) -> None:
    with pytest.raises(ConfigurationError, match="chunk size"):
        seal({"/b": in_memory_or_file(b"x")}, SourceType.TRITON_CACHE, chunk_size)


@pytest.mark.parametrize("path", ["relative", "/a/../b", "/a//b", "/"])
def test_manifest_paths_are_validated(path: str) -> None:
    with pytest.raises(ManifestInvalidError):
        seal({path: in_memory_or_file(b"x")}, SourceType.TRITON_CACHE, 5)


def test_no_bundles_are_no_artifact() -> None:
    with pytest.raises(ManifestInvalidError):
        seal({}, SourceType.TRITON_CACHE, 5)
