"""Places that cannot be a cache root or bundle root, found out without touching them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mx_artifacts.artifacts.bundle_root import check_bundle_root
from mx_artifacts.errors import ExitCode, UnusablePlaceError
from mx_artifacts.install.workspace.opening import check_target
from mx_artifacts.node import mounts
from tests.support.install_cases import mounted


def refused(root: Path, check: object = check_target) -> str:
    with pytest.raises(UnusablePlaceError) as caught:
        check(root)  # type: ignore[operator]
    assert caught.value.exit_code is ExitCode.USAGE
    assert caught.value.hint()
    assert "Errno" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("check", [check_target, check_bundle_root])
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("file", "it exists, but is not a directory"),
        ("file/x/y", "file exists, but is not a directory"),
        ("link-to-file/x", "file exists, but is not a directory"),
        ("loop", "is not a directory"),
        ("x" * 300, "at most 255 bytes"),
        ("new/" + "x" * 300 + "/y", "at most 255 bytes"),
        ("nul\0", "a path must not contain a NUL"),
    ],
)
def test_paths_that_cannot_be_directories_are_refused(
    tmp_path: Path, name: str, why: str, check: object
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link-to-file").symlink_to("file")
    (tmp_path / "loop").symlink_to("loop")
    before = sorted(os.listdir(tmp_path))
    assert why in refused(tmp_path / name, check)
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("check", [check_target, check_bundle_root])
@pytest.mark.skipif(os.geteuid() != 0, reason="others may not write there anyway")
def test_file_systems_of_the_kernel(check: object) -> None:
    assert "users cannot create files" in refused(Path("/proc/foo"), check)


def test_the_whole_file_system() -> None:
    refused(Path("/"))
    refused(Path("/usr/.."))


def test_a_name_that_leaves_no_room_for_the_installers_own(tmp_path: Path) -> None:
    root = tmp_path / ("x" * 250)
    assert "too long a name" in refused(root)
    root.mkdir()
    check_target(root)


@pytest.mark.process
def test_a_read_only_file_system(tmp_path: Path) -> None:
    try:
        with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=1m,ro", "small"):
            for name in ("disk", "disk/new/root"):
                assert "read-only" in refused(tmp_path / name)
    except PermissionError as error:
        pytest.skip(str(error))


def test_a_directory_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    for name in ("", "new/root"):
        assert f"user id {os.geteuid()} may not write to" in refused(tmp_path / name)


def test_existing_directories_and_those_that_can_be_created_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("elsewhere")
    for name in (
        "",
        "new",
        "new/root",
        "link",
        "link/root",
        b"\xff".decode(errors="surrogateescape"),
    ):
        check_target(tmp_path / name)
        check_bundle_root(tmp_path / name)
    assert os.listdir(tmp_path) == ["link"]


def test_which_files_end_with_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts_here = [
        mounts.Mount(Path("/"), "overlay", frozenset()),
        mounts.Mount(tmp_path, "tmpfs", frozenset()),
        mounts.Mount(tmp_path / "disk", "ext4", frozenset()),
    ]
    monkeypatch.setattr(mounts, "mount_table", lambda: mounts_here)
    assert mounts.lies_in_memory(tmp_path / "a" / "b")
    assert not mounts.lies_in_memory(tmp_path / "disk" / "a")
    monkeypatch.setattr(mounts, "mount_table", list)
    assert not mounts.lies_in_memory(tmp_path)
