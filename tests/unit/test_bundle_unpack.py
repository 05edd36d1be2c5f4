import errno
import os
import tempfile
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mx_artifacts.bundle.rules import PackRules
from mx_artifacts.bundle.scan import BundleLimits
from mx_artifacts.bundle.unpack import unpack_bundle
from mx_artifacts.clock import FakeClock
from mx_artifacts.errors import BundleError, InstallError, NoSpaceError
from tests.support import hostile
from tests.support.packing import pack_to_file
from tests.support.trees import Tree, read_tree, trees, write_tree


def bundle_of(directory: Path, content: bytes) -> Path:
    bundle = directory / "bundle.tar"
    bundle.write_bytes(content + hostile.END)
    return bundle


@given(tree=trees(), modes=st.lists(st.integers(0, 0o7777), min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_round_trip_of_arbitrary_trees(tree: Tree, modes: list[int]) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        root = write_tree(directory / "root", tree)
        for (path, content), mode in zip(read_tree(root).items(), cycle(modes), strict=False):
            (root / path).chmod(mode | (0o700 if content is None else 0o400))
        rules = PackRules(keep_mtimes=True)
        report = pack_to_file(root, directory / "b", rules, clock=FakeClock())
        members = unpack_bundle(directory / "b", directory / "out")
        assert report.skipped == ()
        assert read_tree(directory / "out") == read_tree(root)
        assert len(members) == len(read_tree(root))
        for member in members:
            before, after = (root / member.path).stat(), (directory / "out" / member.path).stat()
            assert after.st_mode & 0o7777 == before.st_mode & 0o755
            if not member.is_dir:
                assert after.st_mtime_ns == before.st_mtime_ns
        # A node that has fetched an artifact publishes the same one.
        pack_to_file(directory / "out", directory / "again", rules, clock=FakeClock())
        assert (directory / "again").read_bytes() == (directory / "b").read_bytes()


def test_modes_and_times_are_those_of_the_members(tmp_path: Path) -> None:
    bundle = bundle_of(
        tmp_path,
        hostile.header(b"d", kind=b"5", mode=b"0001555\0", mtime=b"00000000003\0")
        + hostile.header(b"d/s", mode=b"0006777\0")
        + hostile.pax(b"mtime=7.000000009")
        + hostile.header(b"d/x", mode=b"0000444\0")
        + hostile.file(b"implied/y"),
    )
    old_umask = os.umask(0o077)
    try:
        unpack_bundle(bundle, tmp_path / "out")
    finally:
        os.umask(old_umask)
    status = {path: (tmp_path / "out" / path).stat() for path in ("d", "d/s", "d/x", "implied")}
    assert {path: s.st_mode & 0o7777 for path, s in status.items()} == {
        "d": 0o755,
        "d/s": 0o755,
        "d/x": 0o444,
        "implied": 0o755,
    }
    assert status["d"].st_mtime_ns == 3_000_000_000
    assert status["d/x"].st_mtime_ns == 7_000_000_009
    assert status["d/s"].st_mtime_ns > 1_000_000_000_000_000_000  # no time stated: now


def test_content_longer_than_a_block(tmp_path: Path) -> None:
    content = os.urandom(3 * 1024 * 1024 + 17)
    unpack_bundle(bundle_of(tmp_path, hostile.file(b"x", content)), tmp_path / "out")
    assert (tmp_path / "out" / "x").read_bytes() == content


def test_an_empty_destination_is_filled(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    members = unpack_bundle(bundle_of(tmp_path, hostile.file(b"x", b"1")), tmp_path / "out")
    assert [member.path for member in members] == ["x"]
    assert read_tree(tmp_path / "out") == {"x": b"1"}


def test_a_bundle_without_members_makes_an_empty_directory(tmp_path: Path) -> None:
    assert unpack_bundle(bundle_of(tmp_path, b""), tmp_path / "out") == []
    assert os.listdir(tmp_path / "out") == []


def test_destinations_that_are_not_new(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path, hostile.file(b"x"))
    write_tree(tmp_path, {"full": {"y": b""}, "file": b"", "empty": {}})
    (tmp_path / "link").symlink_to("empty")
    (tmp_path / "dangling").symlink_to("nowhere")
    for name in ("full", "file", "link", "dangling", "missing/below"):
        with pytest.raises(InstallError):
            unpack_bundle(bundle, tmp_path / name)
    assert os.listdir(tmp_path / "full") == ["y"]
    assert os.listdir(tmp_path / "empty") == []
    assert not (tmp_path / "nowhere").exists()


def test_a_bundle_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="cannot be read"):
        unpack_bundle(tmp_path / "missing", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_limits_are_the_callers(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path, hostile.file(b"x", b"12345"))
    with pytest.raises(BundleError, match="content exceeds 4 bytes"):
        unpack_bundle(bundle, tmp_path / "out", BundleLimits(max_content_bytes=4))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "space",
    [
        {"f_bavail": 1, "f_files": 0, "f_favail": 0},
        {"f_bavail": 100, "f_files": 100, "f_favail": 1},
    ],
)
def test_space_is_looked_for_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, space: dict[str, int]
) -> None:
    bundle = bundle_of(tmp_path, hostile.file(b"x", b"1") + hostile.file(b"y", b"1"))
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_frsize=4096, **space))
    with pytest.raises(NoSpaceError, match="are needed at"):
        unpack_bundle(bundle, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_disk_that_fills_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = bundle_of(tmp_path, hostile.file(b"x", b"1"))

    def write(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(NoSpaceError, match="no space left"):
        unpack_bundle(bundle, tmp_path / "out")


def test_a_link_that_appears_on_the_way_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = write_tree(tmp_path / "outside", {})
    bundle = bundle_of(tmp_path, hostile.file(b"d/x", b"evil"))
    real_mkdir = os.mkdir

    def mkdir(path: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        if path == "d":
            os.symlink(outside, path, dir_fd=dir_fd)
        else:
            real_mkdir(path, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", mkdir)
    with pytest.raises(InstallError):
        unpack_bundle(bundle, tmp_path / "out")
    assert os.listdir(outside) == []


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path, hostile.file(b"a/b/c/x") + hostile.file(b"a/y"))
    before = len(os.listdir("/proc/self/fd"))
    unpack_bundle(bundle, tmp_path / "out")
    assert len(os.listdir("/proc/self/fd")) == before
