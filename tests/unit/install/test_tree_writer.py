"""Members of a bundle are written as their bytes arrive, in parts of any size, in any order."""

from __future__ import annotations

import os
import random
import tempfile
import threading
from itertools import cycle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mx_artifacts.bundle.rules import PackRules
from mx_artifacts.bundle.scan import BundleLimits, BundleScanner
from mx_artifacts.core.digest import crc32c, crc32c_hex
from mx_artifacts.errors import BundleError, InstallVerificationError
from mx_artifacts.filesystem.access import Access
from mx_artifacts.install.staging.bundle_sink import BundleSink
from mx_artifacts.install.staging.tree_writer import TreeWriter
from mx_artifacts.runtime.clock import FakeClock
from mx_artifacts.runtime.threads import WorkStopped
from tests.support import hostile
from tests.support.packing import SETTLED, pack_to_file, unpack_file
from tests.support.trees import Tree, read_tree, trees, write_tree

MINE = Access(os.geteuid(), os.getegid(), group_write=False)


def bundle_of(directory: Path, content: bytes) -> Path:
    bundle = directory / "bundle.tar"
    bundle.write_bytes(content + hostile.END)
    return bundle


@given(
    tree=trees(),
    modes=st.lists(st.integers(0, 0o7777), min_size=1, max_size=8),
    part_bytes=st.one_of(st.integers(1, 1500), st.just(1 << 20)),
)
@settings(max_examples=60, deadline=None)
def test_round_trip_of_arbitrary_trees(tree: Tree, modes: list[int], part_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        root = write_tree(directory / "root", tree)
        for (path, content), mode in zip(read_tree(root).items(), cycle(modes), strict=False):
            (root / path).chmod(mode | (0o700 if content is None else 0o400))
        rules = PackRules(keep_mtimes=True, secrets=())  # any name is packed
        report = pack_to_file(root, directory / "b", rules, clock=FakeClock())
        out = directory / "out"
        files, directories = unpack_file(directory / "b", out, part_bytes=part_bytes)
        assert report.skipped == ()
        assert read_tree(out) == read_tree(root)
        assert len(files) + len(directories) == len(read_tree(root))
        for file in files:
            after = (out / file.path).stat()
            assert after.st_mtime_ns == file.mtime_ns == (root / file.path).stat().st_mtime_ns
            assert after.st_mode & 0o7777 == file.mode
            content = (out / file.path).read_bytes()
            assert (file.size, file.checksum) == (len(content), crc32c_hex(crc32c(content)))


def test_modes_and_times(tmp_path: Path) -> None:
    bundle = bundle_of(
        tmp_path,
        hostile.header(b"d", kind=b"5", mode=b"0001555\0", mtime=b"00000000003\0")
        + hostile.header(b"d/s", mode=b"0006777\0")
        + hostile.pax(b"mtime=7.000000009")
        + hostile.header(b"d/x", mode=b"0000400\0")
        + hostile.file(b"implied/y"),
    )
    old_umask = os.umask(0o077)
    try:
        unpack_file(bundle, tmp_path / "out")
    finally:
        os.umask(old_umask)
    status = {path: (tmp_path / "out" / path).stat() for path in ("d", "d/s", "d/x", "implied")}
    assert {path: s.st_mode & 0o7777 for path, s in status.items()} == {
        "d": 0o755,
        "d/s": 0o755,
        "d/x": 0o644,  # the engine runs as another user perhaps
        "implied": 0o755,
    }
    assert status["d"].st_mtime_ns == 3_000_000_000
    assert status["d/x"].st_mtime_ns == 7_000_000_009
    assert status["d/s"].st_mtime_ns > 1_000_000_000_000_000_000  # no time stated: now


def test_pieces_in_any_order(tmp_path: Path) -> None:
    content = os.urandom(10_000)
    data = memoryview(hostile.file(b"a/x", content) + hostile.file(b"a/y", content) + hostile.END)
    scanner = BundleScanner(len(data))
    pieces = [
        piece for start in range(0, len(data), 700) for piece in scanner.feed(data[start:][:700])
    ]
    random.Random(1).shuffle(pieces)
    writer = TreeWriter(tmp_path, MINE)
    for piece in pieces:
        writer.write(piece)
    files, _ = writer.finish()
    writer.close()
    assert {file.checksum for file in files} == {crc32c_hex(crc32c(content))}
    assert read_tree(tmp_path) == {"a": None, "a/x": content, "a/y": content}


def test_parts_that_several_threads_bring(tmp_path: Path) -> None:
    """Each has a later part before an earlier one was written."""
    tree = {f"d{i}": {f"f{j}": os.urandom(i * j * 50) for j in range(9)} for i in range(9)}
    pack_to_file(write_tree(tmp_path / "root", tree), tmp_path / "b", PackRules(), clock=SETTLED)
    data = memoryview((tmp_path / "b").read_bytes())
    (tmp_path / "out").mkdir()
    writer = TreeWriter(tmp_path / "out", MINE)
    sink = BundleSink(len(data), writer)
    offsets = list(range(0, len(data), 3000))
    threads = [
        threading.Thread(target=sink.write, args=(offset, data[offset : offset + 3000]))
        for offset in reversed(offsets)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sink.finish()
    writer.finish()
    writer.close()
    assert read_tree(tmp_path / "out") == read_tree(tmp_path / "root")


def test_a_writer_that_waits_for_a_failed_part_fails_too(tmp_path: Path) -> None:
    data = memoryview(hostile.file(b"../x", b"y" * 600) + hostile.END)
    writer = TreeWriter(tmp_path, MINE)
    sink = BundleSink(len(data), writer)
    caught: list[Exception] = []

    def later() -> None:
        try:
            sink.write(1024, data[1024:])
        except WorkStopped as error:
            caught.append(error)

    thread = threading.Thread(target=later)
    thread.start()
    with pytest.raises(BundleError):
        sink.write(0, data[:1024])
    thread.join(timeout=30)
    writer.close()
    assert len(caught) == 1
    assert os.listdir(tmp_path) == []


def test_a_file_with_a_missing_part(tmp_path: Path) -> None:
    data = memoryview(hostile.file(b"x", b"y" * 600))
    writer = TreeWriter(tmp_path, MINE)
    sink = BundleSink(len(data) + 1024, writer)
    sink.write(0, data[:1000])
    with pytest.raises(InstallVerificationError, match=r"112 bytes of 'x'"):
        writer.finish()
    with pytest.raises(BundleError, match="is cut off at byte"):
        sink.finish()
    writer.close()


def test_a_bundle_without_members_makes_an_empty_directory(tmp_path: Path) -> None:
    assert unpack_file(bundle_of(tmp_path, b""), tmp_path / "out") == ((), ())
    assert os.listdir(tmp_path / "out") == []


def test_limits_are_the_callers(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path, hostile.file(b"x", b"12345"))
    with pytest.raises(BundleError, match="content exceeds 4 bytes"):
        unpack_file(bundle, tmp_path / "out", limits=BundleLimits(max_content_bytes=4))
    assert os.listdir(tmp_path / "out") == []


def test_a_file_in_the_way_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x").symlink_to(tmp_path / "victim")
    with pytest.raises(FileExistsError):
        unpack_file(bundle_of(tmp_path, hostile.file(b"x", b"evil")), tmp_path / "out")
    assert (tmp_path / "victim").read_text() == "mine"


@pytest.mark.parametrize("part_bytes", [300, 1 << 20])
def test_no_descriptor_is_left_open(tmp_path: Path, part_bytes: int) -> None:
    bundle = bundle_of(tmp_path, hostile.file(b"a/b/c/x", b"1" * 900) + hostile.file(b"a/y"))
    before = len(os.listdir("/proc/self/fd"))
    unpack_file(bundle, tmp_path / "out", part_bytes=part_bytes)
    with pytest.raises(FileExistsError):
        unpack_file(bundle, tmp_path / "out", part_bytes=part_bytes)
    assert len(os.listdir("/proc/self/fd")) == before
