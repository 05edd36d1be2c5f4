"""The parts of an install on their own: workspace, lock, journal, receipt files, removal."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mx_artifacts.errors import (
    InstallError,
    InstallLockedError,
    MxArtifactsError,
    RollbackFailedError,
    UnusablePlaceError,
)
from mx_artifacts.filesystem.beneath import Directory
from mx_artifacts.filesystem.files import as_json
from mx_artifacts.filesystem.lock import LockFile, locked
from mx_artifacts.filesystem.resolved_path import open_directory
from mx_artifacts.install.receipts.receipt import load_named_receipt, load_receipt
from mx_artifacts.install.workspace import opening
from mx_artifacts.install.workspace.opening import open_workspace
from mx_artifacts.runtime.clock import SYSTEM_CLOCK, FakeClock
from tests.support.install_cases import NEW, contents, fill, install, make_bundle, picture


def test_workspace_is_beside_the_root(tmp_path: Path) -> None:
    found = open_workspace(tmp_path / "a" / "root")
    assert found.directory == tmp_path / "a" / ".mx-artifacts.root"
    assert not (tmp_path / "a" / "root").exists()


@pytest.mark.parametrize("reason", ["mount point", "parent not writable", "long name"])
def test_the_workspace_is_inside_the_root_if_it_cannot_be_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    root = fill(tmp_path / ("r" * 250 if reason == "long name" else "root"), {})
    if reason == "mount point":
        monkeypatch.setattr(opening, "is_mount_point", lambda found, above: found.path == root)
    if reason == "parent not writable":
        monkeypatch.setattr(os, "access", lambda p, m, **k: "dir_fd" not in k)
    found = open_workspace(root)
    assert found.directory == root / ".mx-artifacts"
    report = install(root, make_bundle(tmp_path / "b.tar", NEW))
    assert contents(root) == NEW
    assert report.receipt_path.is_relative_to(root / ".mx-artifacts" / "receipts")


def test_stranger_cannot_prepare_the_workspace(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a stranger's directory")
    root = fill(tmp_path / "root", {})
    stranger = fill(tmp_path / ".mx-artifacts.root", {})
    os.chown(stranger, 4242, 4242)
    assert open_workspace(root).directory == root / ".mx-artifacts"


def test_slash_cannot_be_a_cache_root() -> None:
    with pytest.raises(UnusablePlaceError, match="cannot be a cache root"):
        open_workspace(Path("/"))


@pytest.fixture(name="place")
def _place(tmp_path: Path) -> Iterator[Directory]:
    with open_directory(tmp_path) as directory:
        yield directory


def test_lock_names_its_holder(place: Directory) -> None:
    file = LockFile(place)
    with locked([file], 1.0, SYSTEM_CLOCK):
        held_by_us = f"process {os.getpid()} on "
        with (
            pytest.raises(InstallLockedError, match=held_by_us) as caught,
            locked([file], 5.0, FakeClock()),
        ):
            pass
        assert caught.value.retryable
    with locked([file], 0.0, SYSTEM_CLOCK):
        assert file.path.exists()


def test_locks_taken_before_the_one_that_is_held_are_freed(place: Directory) -> None:
    first, second = LockFile(place, "1"), LockFile(place, "2")
    with locked([second], 1.0, SYSTEM_CLOCK):
        with pytest.raises(InstallLockedError), locked([second, first], 0.0, FakeClock()):
            pass
        with locked([first], 0.0, FakeClock()):
            assert first.path.exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"staged": "../.."}', '{"staged": "x"}'])
def test_damaged_journal_stops_with_the_next_step(tmp_path: Path, text: str) -> None:
    root = fill(tmp_path / "root", {"mine": b"1"})
    journal = open_workspace(root).journal
    journal.write_text(text)
    with pytest.raises(RollbackFailedError, match=r"journal\.json") as caught:
        install(root, make_bundle(tmp_path / "b.tar", NEW))
    assert str(journal.parent) in caught.value.hint()
    assert contents(root) == {"mine": b"1"}


def _set(*keys: Any, value: object) -> Callable[[dict[str, Any]], None]:
    def change(document: Any) -> None:
        for key in keys[:-1]:
            document = document[key]
        document[keys[-1]] = value

    return change


_FILE = ("roots", 0, "installed", 0, "files", 0)
_PATH, _SIZE, _MODE, _, _CHECKSUM, _ARRIVED = range(6)


@pytest.mark.parametrize(
    "change",
    [
        _set("format_version", value=True),
        _set("artifact", "worker_id", value=None),
        _set("roots", value={}),
        _set("roots", 0, value="text"),
        _set("roots", 0, "root", value="relative"),
        _set("roots", 0, "kept", value=["../outside"]),
        _set("roots", 0, "installed", 0, "entry", value=".."),
        _set(*_FILE, value={"path": "k1/a"}),
        _set(*_FILE, value=["k1/a", 1]),
        _set(*_FILE, value=[]),
        _set(*_FILE, _PATH, value="../../etc/passwd"),
        _set(*_FILE, _PATH, value="k2/other entry"),
        _set(*_FILE, _SIZE, value=-1),
        _set(*_FILE, _SIZE, value="1"),
        _set(*_FILE, _MODE, value=0o4755),
        _set(*_FILE, _CHECKSUM, value="00"),
        _set(*_FILE, _ARRIVED, value=[1]),
    ],
)
def test_damaged_receipt_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    path = install(tmp_path / "root", make_bundle(tmp_path / "b.tar", NEW)).receipt_path
    load_receipt(path)
    document = json.loads(path.read_bytes())
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(InstallError, match="not a valid receipt"):
        load_receipt(path)


def test_a_receipt_of_another_release_has_another_error_than_a_damaged_one(tmp_path: Path) -> None:
    path = install(tmp_path / "root", make_bundle(tmp_path / "b.tar", NEW)).receipt_path
    document = json.loads(path.read_bytes())
    _set("format_version", value=2)(document)
    path.write_text(json.dumps(document))
    for load in (load_receipt, load_named_receipt):
        with pytest.raises(
            MxArtifactsError, match="format 2, which another release wrote"
        ) as caught:
            load(path)
        assert "--replace" in caught.value.hint()


def test_receipt_that_is_not_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "receipt.json"
    for content in (b"", b"\0" * 64, b"\xff{}", b"[" * 100_000):
        path.write_bytes(content)
        with pytest.raises(InstallError, match="not a valid receipt"):
            load_receipt(path)


def test_names_that_are_not_utf8_survive_in_documents(tmp_path: Path) -> None:
    name = os.fsdecode(b"k\xff")
    (tmp_path / "x.json").write_bytes(as_json({"name": name}))
    assert json.loads((tmp_path / "x.json").read_bytes()) == {"name": name}


def test_remove_tree_follows_no_link(tmp_path: Path) -> None:
    outside = fill(tmp_path / "outside", {"precious": b"1"})
    tree = fill(tmp_path / "tree", {"a/b": b"2"})
    (tree / "a/link").symlink_to(outside)
    (tree / "a").chmod(0o500)
    with open_directory(tmp_path) as directory:
        directory.remove_tree("tree")
        directory.remove_tree("tree")
    assert picture(tree) is None
    assert contents(outside) == {"precious": b"1"}
