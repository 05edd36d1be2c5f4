import errno
import hashlib
import os
import random
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from mx_artifacts.bulk.read import read_files
from mx_artifacts.bundle.entry import EntryView
from mx_artifacts.bundle.headers import decode_header, decode_pax, encode_member
from mx_artifacts.bundle.pack import pack_tree
from mx_artifacts.bundle.packed import PackReport
from mx_artifacts.bundle.rules import PackRules, first_parts
from mx_artifacts.bundle.scan import BundleMember, scan_bundle
from mx_artifacts.core.digest import crc32c
from mx_artifacts.errors import BundleError
from mx_artifacts.memory.buffers import Buffer
from tests.support.packing import SETTLED, pack_to_file
from tests.support.trees import Tree, trees, write_tree

pytestmark = pytest.mark.usefixtures("each_bulk")

READ_FILES = "mx_artifacts.bundle.read_entry.read_files"


NO_RULES = PackRules()


def pack(root: Path, out: Path, rules: PackRules = NO_RULES) -> PackReport:
    return pack_to_file(root, out, rules, clock=SETTLED)


def members(bundle: Path) -> list[BundleMember]:
    return scan_bundle(bundle.read_bytes())


def test_report_and_content(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "root", {"d": {"x": b"12345", "lock": b""}, "y": b"67"})
    bundle = tmp_path / "artifact.tar"
    report = pack(root, bundle, PackRules(exclude=("lock",)))
    assert (report.file_count, report.content_bytes) == (2, 7)
    assert report.bundle_bytes == bundle.stat().st_size
    assert [skip.path for skip in report.skipped] == ["d/lock"]
    found = members(bundle)
    assert [member.path for member in found] == ["d", "d/x", "y"]
    content = bundle.read_bytes()
    assert content[found[1].offset :][:5] == b"12345"


def test_headers_name_no_owner_and_no_time(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "root", {"d": {"x": b""}})
    pack(root, tmp_path / "b")
    with tarfile.open(tmp_path / "b") as archive:
        for info in archive:
            assert (info.uid, info.gid, info.uname, info.gname) == (0, 0, "", "")
            assert info.mtime == 0
            assert info.pax_headers == {}


@pytest.mark.parametrize("mtime_ns", [1_700_000_000_123_456_789, 1, -1_500_000_000, 1 << 62])
def test_kept_times_are_exact(tmp_path: Path, mtime_ns: int) -> None:
    root = write_tree(tmp_path / "root", {"d": {"x": b""}})
    os.utime(root / "d" / "x", ns=(0, mtime_ns))
    stored_ns = (root / "d" / "x").stat().st_mtime_ns  # file systems have ranges
    pack(root, tmp_path / "b", PackRules(keep_mtimes=True))
    assert [member.mtime_ns for member in members(tmp_path / "b")] == [0, stored_ns]


def test_modes_are_masked(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "root", {"d": {"x": b""}, "s": b"", "w": b""})
    (root / "s").chmod(0o6777)
    (root / "w").chmod(0o666)
    (root / "d").chmod(0o1777)
    (root / "d" / "x").chmod(0o600)
    pack(root, tmp_path / "b")
    with tarfile.open(tmp_path / "b") as archive:
        modes = {info.name: info.mode for info in archive}
    assert modes == {"d": 0o755, "d/x": 0o600, "s": 0o755, "w": 0o644}


def test_hard_links_and_links_arrive_as_files(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "root", {"x": b"content"})
    os.link(root / "x", root / "hard")
    (root / "soft").symlink_to("x")
    assert pack(root, tmp_path / "b").file_count == 3
    with tarfile.open(tmp_path / "b") as archive:
        for info in archive:
            extracted = archive.extractfile(info)
            assert info.isreg()
            assert extracted is not None
            assert extracted.read() == b"content"


def test_files_longer_than_a_block(tmp_path: Path) -> None:
    content = random.Random(1).randbytes(3 * 1024 * 1024 + 17)
    root = write_tree(tmp_path / "root", {"x": content, "y": b"after"})
    pack(root, tmp_path / "b")
    bundle = (tmp_path / "b").read_bytes()
    for member, expected in zip(members(tmp_path / "b"), (content, b"after"), strict=True):
        assert bundle[member.offset :][: member.size] == expected


def test_sizes_beyond_the_plain_field_are_stated_in_an_extension() -> None:
    blocks = encode_member("x", is_dir=False, size=1 << 34, mode=0o644, mtime_ns=0)
    extension = decode_header(blocks[:512])
    assert extension.kind == b"x"
    assert decode_pax(blocks[512 : 512 + extension.size]).size == 1 << 34
    assert decode_header(blocks[-512:]).size == 0


@given(tree=trees())
@settings(max_examples=40, deadline=None)
def test_equal_trees_give_equal_bytes(tree: Tree) -> None:
    def shuffled(tree: Tree, order: random.Random) -> Tree:
        items = [
            (name, child if isinstance(child, bytes) else shuffled(child, order))
            for name, child in tree.items()
        ]
        order.shuffle(items)
        return dict(items)

    rules = PackRules(entry_of=first_parts(1), secrets=())
    with tempfile.TemporaryDirectory() as directory:
        bundles = []
        for seed in (1, 2):
            root = Path(directory, f"root{seed}", "deeper" * seed)
            write_tree(root, shuffled(tree, random.Random(seed)))
            for attempt in range(2):
                bundle = Path(directory, f"{seed}{attempt}")
                pack(root, bundle, rules)
                bundles.append(bundle.read_bytes())
    assert len(set(bundles)) == 1


def test_bytes_are_pinned(tmp_path: Path) -> None:
    """A change of these bytes changes every artifact id: it needs a new format version."""
    root = write_tree(tmp_path / "root", {"d": {"é" * 60: b"x"}, "plain": b"y"})
    for path in (root / "d" / ("é" * 60), root / "plain"):
        path.chmod(0o644)
        os.utime(path, ns=(0, 1_700_000_000_000_000_001))
    (root / "d").chmod(0o755)
    digests = []
    for keep_mtimes in (False, True):
        pack(root, tmp_path / "b", PackRules(keep_mtimes=keep_mtimes))
        digests.append(hashlib.sha256((tmp_path / "b").read_bytes()).hexdigest()[:16])
    assert digests == ["fee03f0a725949ac", "acd8d352c67003f6"]


@pytest.mark.parametrize("tree", [{}, {"d": {}}, {"lock": b""}])
def test_nothing_to_publish(tmp_path: Path, tree: Tree) -> None:
    root = write_tree(tmp_path / "root", tree)
    with pytest.raises(BundleError, match="nothing to publish") as caught:
        pack(root, tmp_path / "b", PackRules(exclude=("lock",)))
    assert caught.value.hint()
    assert not caught.value.retryable


def test_an_optional_root_may_be_missing_or_empty(tmp_path: Path) -> None:
    for name in ("missing", "empty"):
        if name == "empty":
            (tmp_path / name).mkdir()
        report = pack_to_file(tmp_path / name, tmp_path / "b", PackRules(), optional=True)
        assert report == PackReport(0, 0, 1024, ())
        assert members(tmp_path / "b") == []


def refuse(monkeypatch: pytest.MonkeyPatch, refused: str, error: int) -> None:
    """Let reading the file `refused` fail."""

    def read(root: int, paths: Sequence[str], *rest: Any) -> Sequence[int]:
        if refused in paths:
            raise OSError(error, os.strerror(error), refused)
        return read_files(root, paths, *rest)

    monkeypatch.setattr(READ_FILES, read)


def test_an_unreadable_file_takes_its_entry_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_tree(
        tmp_path / "root", {"a": {"x": b"1"}, "b": {"x": b"2", "y": b"3"}, "c": {"x": b"4"}}
    )
    # root, as whom tests may run, can open everything
    refuse(monkeypatch, "b/y", errno.EACCES)
    report = pack(root, tmp_path / "bundle", PackRules(entry_of=first_parts(1)))
    assert report.file_count == 2
    assert report.content_bytes == 2
    assert [(s.path, s.reason) for s in report.skipped] == [
        ("b", "b/y cannot be read (Permission denied)")
    ]
    assert [m.path for m in members(tmp_path / "bundle")] == ["a", "a/x", "c", "c/x"]


def test_a_read_error_takes_the_entry_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_tree(tmp_path / "root", {"a": b"1", "b": b"22"})
    refuse(monkeypatch, "b", errno.EIO)
    report = pack(root, tmp_path / "bundle")
    assert [s.reason for s in report.skipped] == ["b cannot be read (Input/output error)"]
    assert [m.path for m in members(tmp_path / "bundle")] == ["a"]


class Counted(Buffer):
    """Memory that is counted while it is lent."""

    lent = 0

    def __init__(self, length: int) -> None:
        super().__init__(length)
        Counted.lent += 1

    def close(self) -> None:
        super().close()
        Counted.lent -= 1


@pytest.mark.parametrize("failure", [KeyboardInterrupt, MemoryError])
def test_memory_is_given_back_when_packing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: type[BaseException]
) -> None:
    root = write_tree(tmp_path / "root", {"x": b"1"})

    def fail(*_: object) -> Sequence[int]:
        raise failure

    monkeypatch.setattr(READ_FILES, fail)
    with pytest.raises(failure):
        pack_tree(root, PackRules(), Counted, clock=SETTLED)
    assert Counted.lent == 0


def test_checksums_and_offsets_are_those_of_the_bundle(tmp_path: Path) -> None:
    tree = {"a": {"x": b"1", "bad": b"!"}, "b": {"y": b"22" * 999}, "c": {"z": b""}}
    root = write_tree(tmp_path / "root", tree)

    def fault_of(entry: EntryView) -> str | None:
        return "bad" if f"{entry.path}/bad" in entry.files else None

    rules = PackRules(entry_of=first_parts(1), fault_of=fault_of, keep_mtimes=True)
    packed = pack_tree(root, rules, Buffer, clock=SETTLED)
    view = packed.memory.view
    members = packed.members
    found = scan_bundle(view)
    rows = zip(*members.columns.columns(), members.offsets, strict=True)
    assert list(map(BundleMember._make, rows)) == found
    contents = [view[member.offset : member.offset + member.size] for member in found]
    assert members.checksums == list(map(crc32c, contents))
    assert [skip.path for skip in packed.report.skipped] == ["a"]
