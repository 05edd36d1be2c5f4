"""Full disks, and several installers of one root, through the command line."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.support.install_cases import contents, fill, leftovers, mounted, picture
from tests.support.nodes import FIRST, Cluster, warm_cache
from tests.support.trees import read_tree

MIB = 1 << 20
OLD = {f"1.0/sm90/autotuner/{FIRST}/tuned.bin": b"old", "mine": b"compiled here"}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    with ExitStack() as stack:
        try:
            stack.enter_context(mounted(disk, "-t", "tmpfs", "-o", "size=4m", "small"))
        except PermissionError as error:
            pytest.skip(str(error))
        yield disk


def fill_up(directory: Path) -> None:
    with open(directory / "hog", "wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def test_a_disk_too_small_for_the_root(cluster: Cluster, small_disk: Path, tmp_path: Path) -> None:
    root = fill(small_disk / "root", OLD)
    before = picture(root)
    with cluster.source(warm_cache(tmp_path / "big", 6 * MIB)):
        ends = [cluster.fetch(root, "--replace", *more) for more in ((), ("--dry-run",))]
    for code, error in ends:
        assert (code, error["type"]) == (16, "NoSpaceError")
        assert str(small_disk) in error["message"]
        assert "name another directory with --root" in error["hint"]
    assert picture(root) == before
    assert leftovers(root) == []
    assert cluster.staged() == []


def test_a_disk_too_small_for_bundles(cluster: Cluster, small_disk: Path, tmp_path: Path) -> None:
    """Which matters where they do not fit into the memory."""
    cache = warm_cache(tmp_path / "big", 6 * MIB)
    there = ("--bundle-root", str(small_disk))
    code, error = cluster.publish(cache, *there, MX_ARTIFACT_RESIDENT_BUDGET="1")
    assert (code, error["type"]) == (16, "NoSpaceError")
    assert "--bundle-root" in error["hint"]
    assert list(small_disk.iterdir()) == []
    with cluster.source(cache, *there):
        code, _ = cluster.fetch(tmp_path / "cold")
    assert code == 0
    assert read_tree(tmp_path / "cold") == read_tree(cache)


def test_a_disk_that_fills_up_during_the_transfer(
    cluster: Cluster, small_disk: Path, tmp_path: Path
) -> None:
    cache = warm_cache(tmp_path / "big", 2 * MIB, files=16)
    slow = ("--chunk-size", "8KiB", "--slots", "1", "--max-rate", "1MiB")
    with cluster.source(cache, *slow, MX_ARTIFACT_RESIDENT_BUDGET="1"):
        root = small_disk / "cold"
        with cluster.target(root) as target:
            assert target.expect("transfer.span")
            fill_up(small_disk)
            code, error = target.end()
        assert (code, error["type"]) == (16, "NoSpaceError")
        assert [path.name for path in small_disk.iterdir()] == ["hog"]
        (small_disk / "hog").unlink()
        code, _ = cluster.fetch(root)
    assert code == 0
    assert read_tree(root) == read_tree(cache)


def test_two_installers_of_one_root_both_do_right(
    cluster: Cluster, cache: Path, tmp_path: Path
) -> None:
    root = tmp_path / "cold"
    with cluster.source(cache), ExitStack() as stack:
        pair = [stack.enter_context(cluster.target(root)) for _ in range(2)]
        ends = [installer.end() for installer in pair]
    assert [code for code, _ in ends] == [0, 0], ends
    assert contents(root) == contents(cache)
    installed = [end["installed"][0]["roots"][0]["installed"] for _, end in ends]
    assert sorted(map(len, installed)) == [0, 2]
    assert leftovers(root) == []
    assert cluster.staged() == []


def test_a_root_that_stays_locked_is_named_with_its_holder(
    cluster: Cluster, cache: Path, tmp_path: Path
) -> None:
    lock = fill(tmp_path / ".mx-artifacts.cold", {"lock": b"4242 on elsewhere"}) / "lock"
    with cluster.source(cache), lock.open("rb") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        code, error = cluster.fetch(tmp_path / "cold", "--lock-timeout", "200ms")
    assert (code, error["type"]) == (11, "InstallLockedError")
    assert "4242 on elsewhere" in error["message"]
    assert not (tmp_path / "cold").exists()
    assert cluster.staged() == []
