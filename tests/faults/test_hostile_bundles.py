"""No hostile or damaged bundle gets as far as the target."""

from __future__ import annotations

import os
import tarfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mx_artifacts.bundle.names import path_fault
from mx_artifacts.bundle.scan import BundleLimits, BundleScanner, scan_bundle
from mx_artifacts.errors import BundleError, UnsafePathError
from tests.support import hostile
from tests.support.packing import unpack_file


@pytest.mark.parametrize("name", hostile.CORPUS)
@pytest.mark.parametrize("part_bytes", [700, 1 << 20])
def test_refused_with_nothing_outside_the_target(
    tmp_path: Path, name: str, part_bytes: int
) -> None:
    bundle = tmp_path / "hostile.tar"
    bundle.write_bytes(hostile.CORPUS[name])
    target = tmp_path / "target"

    with pytest.raises(BundleError) as caught:
        unpack_file(bundle, target, part_bytes=part_bytes)

    assert str(caught.value)
    assert sorted(os.listdir(tmp_path)) == ["hostile.tar", "target"]
    assert not any(path.is_symlink() or path.is_fifo() for path in target.rglob("*"))


@pytest.mark.parametrize(
    "name",
    [
        "name: absolute",
        "name: dot dot inside",
        "kind: symbolic link",
        "kind: hard link",
        "kind: FIFO",
        "clash: case",
        "rename: pax path",
        "rename: long name to a parent",
        "damage: last of a thousand",
    ],
)
def test_members_that_would_leave_the_root_raise_unsafe_path_error(name: str) -> None:
    with pytest.raises(UnsafePathError):
        scan_bundle(hostile.CORPUS[name])


def test_an_error_says_which_member_and_where() -> None:
    bundle = hostile.file(b"good", b"good") + hostile.file(b"../bad") + hostile.END
    with pytest.raises(UnsafePathError, match=r"\.\./bad.*'\.\.'.*byte 1024"):
        scan_bundle(bundle)


def scan_blocks(bundle: hostile.MillionsOfMembers, limits: BundleLimits) -> None:
    scanner = BundleScanner(bundle.length, limits)
    for _ in range(0, bundle.length, hostile.BLOCK):
        for _ in scanner.feed(memoryview(bundle.read_block())):
            pass


def test_ten_million_members_are_refused_early_and_in_little_memory() -> None:
    bundle = hostile.MillionsOfMembers(10_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(BundleError, match="more than 5000 members"):
            scan_blocks(bundle, BundleLimits(max_members=5_000))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert bundle.blocks_read <= 5_000
    assert peak_bytes < 5_000 * 1024


def test_paths_that_imply_many_directories_count_as_members() -> None:
    deep = b"".join(hostile.file(b"%d/" % i + b"d/" * 30 + b"x") for i in range(10))
    with pytest.raises(BundleError, match="more than 100 members"):
        scan_bundle(deep + hostile.END, BundleLimits(max_members=100))


def test_content_and_names_have_limits() -> None:
    bundle = hostile.file(b"a", b"12345") + hostile.file(b"b", b"12345") + hostile.END
    assert len(scan_bundle(bundle, BundleLimits(max_content_bytes=10))) == 2
    with pytest.raises(BundleError, match="content exceeds 9 bytes"):
        scan_bundle(bundle, BundleLimits(max_content_bytes=9))
    with pytest.raises(BundleError, match="names exceed 1 bytes"):
        scan_bundle(bundle, BundleLimits(max_names_bytes=1))


def test_every_single_flipped_bit_of_a_header_is_noticed() -> None:
    good = hostile.file(b"good.bin", b"good") + hostile.END
    for bit in range(hostile.BLOCK * 8):
        if 148 <= bit // 8 < 156:
            continue  # the checksum itself: a blank for a leading zero changes nothing
        damaged = bytearray(good)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BundleError):
            scan_bundle(damaged)


def test_every_truncation_is_noticed() -> None:
    good = hostile.long_name(b"n" * 120) + hostile.file(b"n" * 100, b"x" * 600) + hostile.END
    assert len(scan_bundle(good)) == 1
    for length in range(0, len(good), 64):
        with pytest.raises(BundleError):
            scan_bundle(good[:length])


@given(
    changes=st.lists(
        st.tuples(st.integers(0, 5 * hostile.BLOCK - 1), st.binary(min_size=1, max_size=12)),
        min_size=1,
        max_size=4,
    )
)
@settings(max_examples=300, deadline=None)
def test_any_damage_under_right_checksums_is_refused_or_harmless(
    changes: list[tuple[int, bytes]],
) -> None:
    bundle = bytearray(
        hostile.pax(b"path=" + b"n" * 120, b"mtime=1.5")
        + hostile.file(b"n" * 100, b"data")
        + hostile.directory(b"d/")
        + hostile.END
    )
    for offset, replacement in changes:
        bundle[offset : offset + len(replacement)] = replacement
    for start in (0, 2 * hostile.BLOCK, 4 * hostile.BLOCK):
        block = bundle[start : start + hostile.BLOCK]
        bundle[start : start + hostile.BLOCK] = hostile.checksummed(block)
    try:
        members = scan_bundle(bundle)
    except BundleError:
        return
    for member in members:
        assert path_fault(member.path) is None
        assert member.mode & ~0o755 == 0
        assert 0 <= member.offset <= member.offset + member.size <= len(bundle)


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_links_by_real_tools_are_refused(tmp_path: Path, form: int) -> None:
    (tmp_path / "target").write_text("secret")
    (tmp_path / "link").symlink_to("target")
    bundle = tmp_path / "links.tar"
    with tarfile.open(bundle, "w", format=form) as archive:
        archive.add(tmp_path / "link", "link")
    with pytest.raises(UnsafePathError, match="symbolic link"):
        scan_bundle(bundle.read_bytes())
