from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from mx_artifacts.errors import InstallError, NoSpaceError
from mx_artifacts.transfer.plan import target_names
from mx_artifacts.transfer.staging import StagedFiles
from tests.support.artifacts import SealedArtifact, make_artifact


@pytest.fixture
def artifact(tmp_path: Path) -> SealedArtifact:
    return make_artifact({"artifact.tar": 5000, "empty.tar": 0})


def _staged(directory: Path, artifact: SealedArtifact) -> StagedFiles:
    return StagedFiles(directory, artifact.manifest, target_names(artifact.manifest))


def test_chunks_in_any_order_make_the_files(tmp_path: Path, artifact: SealedArtifact) -> None:
    with _staged(tmp_path / "new" / "dir", artifact) as files:
        for chunk in reversed(artifact.manifest.chunks):
            data = artifact.content["/bundle/artifact.tar"]
            part = bytearray(data[chunk.file_offset : chunk.file_offset + chunk.length])
            files.write(chunk, memoryview(part))
    assert {p: f.read_bytes() for p, f in files.paths.items()} == artifact.content
    with pytest.raises(InstallError, match="over"):
        files.write(artifact.manifest.chunks[0], memoryview(b""))


def test_an_error_removes_all_files(tmp_path: Path, artifact: SealedArtifact) -> None:
    files = _staged(tmp_path / "t", artifact)
    files.__enter__()
    assert len(list((tmp_path / "t").iterdir())) == 2
    files.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert list((tmp_path / "t").iterdir()) == []


@pytest.mark.parametrize("link", [False, True])
def test_what_stands_there_is_neither_followed_nor_touched(
    tmp_path: Path, artifact: SealedArtifact, link: bool
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    (tmp_path / "t").mkdir()
    there = tmp_path / "t" / "empty.tar"
    there.symlink_to(outside) if link else there.write_text("mine")
    with pytest.raises(InstallError, match=r"empty\.tar exists"), _staged(tmp_path / "t", artifact):
        pass
    assert [p.name for p in (tmp_path / "t").iterdir()] == ["empty.tar"]
    assert outside.read_text() == there.read_text() == "mine"


def test_too_little_space_is_said_before_the_first_byte(
    tmp_path: Path, artifact: SealedArtifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.statvfs(tmp_path)
    full = os.statvfs_result([*real[:3], 0, 0, *real[5:10]])
    monkeypatch.setattr("mx_artifacts.transfer.staging.os.statvfs", lambda _path: full)
    with pytest.raises(NoSpaceError, match="0 bytes free"), _staged(tmp_path / "t", artifact):
        pass


def test_a_disk_that_fills_up_is_no_space(
    tmp_path: Path, artifact: SealedArtifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("mx_artifacts.transfer.staging.os.pwrite", full)
    with pytest.raises(NoSpaceError), _staged(tmp_path / "t", artifact) as files:
        files.write(artifact.manifest.chunks[0], memoryview(b"x"))
    assert list((tmp_path / "t").iterdir()) == []
