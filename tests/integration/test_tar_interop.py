"""Bundles by GNU tar and Python's tarfile are read, and they read ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from mx_artifacts.bundle.rules import PackRules
from mx_artifacts.bundle.scan import BundleMember, scan_bundle
from tests.support.packing import pack_to_file, unpack_file
from tests.support.trees import Tree, read_tree, write_tree

needs_gnu_tar = pytest.mark.skipif(shutil.which("tar") is None, reason="tar is not installed")

TREE: Tree = {
    "plain.so": b"plain",
    "empty": b"",
    "directory": {"nothing": {}, "below": {"x": b"x" * 1000}},
    "l" * 99: {"m" * 99: {"long": b"long"}},
    "n" * 255: b"longest name",
    "ünïcode": {"文件" * 20: b"unicode", "é" * 120: b"cut inside a character"},
    "back\\slash and blank": b"odd",
    ".hidden": {".committed": b""},
}
MTIME_NS = 1_700_000_000_123_456_700  # tenths of a microsecond: what tarfile's float still holds


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = write_tree(tmp_path / "root", TREE)
    for path in root.rglob("*"):
        path.chmod(0o755 if path.is_dir() or path.suffix == ".so" else 0o640)
        os.utime(path, ns=(MTIME_NS, MTIME_NS))
    return root


def tar(*arguments: str | Path) -> None:
    subprocess.run(["tar", *arguments], check=True)


def scan(bundle: Path) -> list[BundleMember]:
    return scan_bundle(bundle.read_bytes())


@needs_gnu_tar
@pytest.mark.parametrize("form", ["gnu", "pax"])
@pytest.mark.parametrize("names", [".", "*"])
def test_gnu_tar_writes_and_we_read(tmp_path: Path, root: Path, form: str, names: str) -> None:
    bundle = tmp_path / "b.tar"
    members = ["."] if names == "." else sorted(os.listdir(root))
    tar(f"--format={form}", "-cf", bundle, "-C", root, "--", *members)
    found = {member.path: member for member in scan(bundle)}
    unpack_file(bundle, tmp_path / "out")
    assert read_tree(tmp_path / "out") == read_tree(root)
    assert set(found) == set(read_tree(root))
    assert found["plain.so"].mode == 0o755
    assert found["empty"].mode == 0o640
    assert found["empty"].mtime_ns == (MTIME_NS if form == "pax" else MTIME_NS // 10**9 * 10**9)


@needs_gnu_tar
def test_the_way_the_reference_calls_tar(tmp_path: Path, root: Path) -> None:
    listed = ["./", *(f"./{path}" for path in read_tree(root))]
    (tmp_path / "names").write_bytes(b"".join(os.fsencode(name) + b"\0" for name in listed))
    bundle = tmp_path / "b.tar"
    tar("-cf", bundle, "-C", root, "--null", "--no-recursion", "-T", tmp_path / "names")
    unpack_file(bundle, tmp_path / "out")
    assert read_tree(tmp_path / "out") == read_tree(root)


@needs_gnu_tar
def test_gnu_tar_with_large_owners_and_times_before_1970(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "root", {"x": b"1"})
    for form in ("gnu", "pax"):
        bundle = tmp_path / f"{form}.tar"
        tar(
            f"--format={form}", "--owner=:1001230000", "--group=:1001230000",
            "--mtime=1960-01-01 UTC", "-cf", bundle, "-C", root, ".",
        )  # fmt: skip
        assert [member.mtime_ns for member in scan(bundle)] == [-315619200 * 10**9]


@needs_gnu_tar
@pytest.mark.parametrize("form", ["gnu", "pax"])
def test_gnu_tar_headers_of_a_file_of_nine_gigabytes(tmp_path: Path, form: str) -> None:
    size = 9 << 30
    with open(tmp_path / "large", "wb") as file:
        file.truncate(size)
    with subprocess.Popen(
        ["tar", f"--format={form}", "-cf", "-", "-C", tmp_path, "large"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        start = process.stdout.read(4096)
        process.kill()
    headers = start[: start.index(b"large", 1024 if form == "pax" else 0) // 512 * 512 + 512]
    bundle = tmp_path / "b.tar"
    with open(bundle, "wb") as file:
        file.write(headers)
        file.truncate(len(headers) + size + 1024)
    assert [(member.path, member.size) for member in scan(bundle)] == [("large", size)]


@needs_gnu_tar
def test_we_write_and_gnu_tar_reads(tmp_path: Path, root: Path) -> None:
    pack_to_file(root, tmp_path / "b.tar", PackRules(keep_mtimes=True))
    (tmp_path / "out").mkdir()
    tar("-xpf", tmp_path / "b.tar", "-C", tmp_path / "out")
    assert read_tree(tmp_path / "out") == read_tree(root)
    status = (tmp_path / "out" / "plain.so").stat()
    assert status.st_mtime_ns == MTIME_NS
    assert status.st_mode & 0o777 == 0o755


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_python_writes_and_we_read(tmp_path: Path, root: Path, form: int) -> None:
    bundle = tmp_path / "b.tar"
    with tarfile.open(bundle, "w", format=form) as archive:
        archive.add(root, ".")
    unpack_file(bundle, tmp_path / "out")
    assert read_tree(tmp_path / "out") == read_tree(root)


def test_python_writes_plain_ustar_with_prefixes_and_we_read(tmp_path: Path) -> None:
    root = write_tree(tmp_path / "root", {"d" * 80: {"e" * 60: {"x": b"1"}}})
    bundle = tmp_path / "b.tar"
    with tarfile.open(bundle, "w", format=tarfile.USTAR_FORMAT) as archive:
        archive.add(root, ".")
    unpack_file(bundle, tmp_path / "out")
    assert read_tree(tmp_path / "out") == read_tree(root)


def test_the_references_empty_bundle(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "b.tar", "w"):
        pass
    assert scan(tmp_path / "b.tar") == []


def test_we_write_and_python_reads(tmp_path: Path, root: Path) -> None:
    pack_to_file(root, tmp_path / "b.tar", PackRules(keep_mtimes=True))
    with tarfile.open(tmp_path / "b.tar", "r:") as archive:
        names = {info.name: info for info in archive}
        assert set(names) == set(read_tree(root))
        assert all(info.isreg() or info.isdir() for info in names.values())
        assert names["empty"].mtime == pytest.approx(MTIME_NS / 1e9, abs=1e-6)
        content = archive.extractfile(names["ünïcode/" + "é" * 120])
        assert content is not None
        assert content.read() == b"cut inside a character"
