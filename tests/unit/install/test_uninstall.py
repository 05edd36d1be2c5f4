"""Verifying an install and taking it back: exactly what it put there, as often as asked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mx_artifacts.errors import ConfigurationError, InstallLockedError
from mx_artifacts.filesystem.lock import LockFile, locked
from mx_artifacts.filesystem.resolved_path import open_directory
from mx_artifacts.install.base import ArtifactOrigin
from mx_artifacts.install.receipts.lookup import find_receipts
from mx_artifacts.install.receipts.receipt import load_receipt
from mx_artifacts.install.state.contents import verify_receipt
from mx_artifacts.install.uninstall import UndoReport, uninstall_artifact
from mx_artifacts.observability.events import Event, EventSink
from mx_artifacts.runtime.clock import FakeClock
from tests.support.install_cases import (
    NEW,
    OLD,
    contents,
    fill,
    install,
    leftovers,
    make_bundle,
    picture,
    workspace_of,
)

OTHER = ArtifactOrigin("cd" * 32, "source-2", "worker-2", "10.0.0.2:6555", "triton")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "root"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "artifact.tar", NEW)


def undo(receipt: Path, **options: object) -> UndoReport:
    return uninstall_artifact(receipt, lock_timeout_seconds=5, **options)  # type: ignore[arg-type]


def states(receipt: Path) -> dict[str, str]:
    report = verify_receipt(load_receipt(receipt))
    return {entry.entry: entry.state for root in report.roots for entry in root.entries}


# --- verify ---------------------------------------------------------------------------------------


def test_verify_reports_intact_changed_and_missing_entries(root: Path, bundle: Path) -> None:
    receipt = install(root, bundle).receipt_path
    assert verify_receipt(load_receipt(receipt)).is_intact
    (root / "k1/kernel.so").write_bytes(b"other k1 s")
    (root / "k2/kernel.json").unlink()
    (root / "k3").unlink()
    assert states(receipt) == {"k1": "changed", "k2": "changed", "k3": "missing"}


def test_verify_sees_one_byte_of_a_file_whose_size_and_mtime_are_as_they_were(
    root: Path, bundle: Path
) -> None:
    receipt = install(root, bundle).receipt_path
    file = root / "k1/kernel.so"
    before = file.stat()
    file.write_bytes(b"new k1 sO")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert states(receipt) == {"k1": "changed", "k2": "intact", "k3": "intact"}


def test_verify_follows_no_link_and_leaves_access_times(root: Path, bundle: Path) -> None:
    receipt = install(root, bundle).receipt_path
    (root / "k2").rename(root.parent / "elsewhere")
    (root / "k2").symlink_to(root.parent / "elsewhere")
    accessed = (root / "k1/kernel.so").stat().st_atime_ns
    assert states(receipt) == {"k1": "intact", "k2": "changed", "k3": "intact"}
    assert (root / "k1/kernel.so").stat().st_atime_ns == accessed


# --- uninstall ------------------------------------------------------------------------------------


@pytest.mark.parametrize("existed", ["absent", "empty", "filled"])
def test_uninstall_leaves_the_root_as_it_was_before(root: Path, bundle: Path, existed: str) -> None:
    if existed != "absent":
        fill(root, OLD if existed == "filled" else {})
    before = picture(root)
    receipt = install(root, bundle).receipt_path
    report = undo(receipt)
    assert report.is_complete
    assert picture(root) == before
    assert leftovers(root) == []
    assert not receipt.exists()
    assert find_receipts(root) == []


def test_files_that_other_programs_added_stay(root: Path, bundle: Path) -> None:
    receipt = install(root, bundle).receipt_path
    theirs = {"k9/kernel.so": b"compiled since", "k2/deep/late.so": b"in our entry"}
    fill(root, {**theirs, "k1/lock": b""})
    undo(receipt)
    assert contents(root) == theirs  # a lock goes with the entry that it locked


def test_a_changed_entry_is_kept_whole_until_forced(root: Path, bundle: Path) -> None:
    receipt = install(root, bundle).receipt_path
    (root / "k1/kernel.so").write_bytes(b"built again")
    report = undo(receipt)
    assert not report.is_complete
    assert report.roots[0].removed == ("k2", "k3")
    assert "kernel.so" in report.roots[0].kept["k1"]
    assert contents(root) == {"k1/kernel.so": b"built again", "k1/kernel.json": b"new k1 json"}
    assert states(receipt) == {"k1": "changed"}  # the receipt lists what is left
    assert undo(receipt, force=True).is_complete
    assert not root.exists()


def test_a_killed_undo_is_completed_by_the_next(root: Path, bundle: Path) -> None:
    """As by kill -9 after each removal: nothing but the next run brings it to an end."""
    receipt = install(root, bundle).receipt_path

    for done in (0, 1, 2):
        with pytest.raises(KeyboardInterrupt):
            undo(receipt, events=_die_after(done))
        found = list(states(receipt).values())
        assert (found.count("missing"), found.count("intact")) == (done + 1, 2 - done)
    assert undo(receipt).is_complete
    assert not root.exists()
    assert leftovers(root) == []


def _die_after(removed: int) -> EventSink:
    left = iter(range(removed))

    def die(event: Event) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    return die


def test_twice_is_fine_and_an_unknown_receipt_is_not(root: Path, bundle: Path) -> None:
    receipt = install(root, bundle).receipt_path
    undo(receipt)
    assert undo(receipt).roots == ()
    assert undo(receipt.with_name(receipt.name + ".uninstalled")).roots == ()
    with pytest.raises(ConfigurationError, match="No such file"):
        undo(receipt.with_name("none.json"))


def test_a_copied_receipt_removes_nothing(root: Path, bundle: Path, tmp_path: Path) -> None:
    receipt = install(root, bundle).receipt_path
    copy = tmp_path / receipt.name
    copy.write_bytes(receipt.read_bytes())
    with pytest.raises(ConfigurationError, match="not in the directory"):
        undo(copy)
    assert contents(root) == NEW


def test_a_later_install_owns_its_entries(root: Path, bundle: Path, tmp_path: Path) -> None:
    first = install(root, bundle, clock=FakeClock()).receipt_path
    later = {"k1/kernel.so": b"later k1"}
    second_bundle = make_bundle(tmp_path / "second.tar", later)
    second = install(root, second_bundle, artifact=OTHER, replace=True).receipt_path
    assert [found.path for found in find_receipts(root)] == [second, first]
    report = undo(first)
    assert report.roots[0].superseded == ("k1",)
    assert contents(root) == later
    assert undo(second).is_complete
    assert not root.exists()  # the first install made it


def test_a_root_that_does_not_exist_needs_no_uninstall(root: Path, bundle: Path) -> None:
    receipt = install(root, bundle).receipt_path
    root.rename(root.parent / "away")
    assert undo(receipt).is_complete
    assert not root.exists()


def test_links_that_took_an_entrys_place_are_left_alone(root: Path, bundle: Path) -> None:
    receipt = install(root, bundle).receipt_path
    (root / "k2").rename(root.parent / "elsewhere")
    (root / "k2").symlink_to(root.parent / "elsewhere")
    assert not undo(receipt).is_complete
    assert not undo(receipt, force=True).is_complete
    assert (root / "k2").is_symlink()
    assert set(contents(root.parent / "elsewhere")) == {"deep/kernel.so", "kernel.json"}


def test_an_installer_at_work_is_waited_for_and_then_named(root: Path, bundle: Path) -> None:
    receipt = install(root, bundle).receipt_path
    clock = FakeClock()
    with (
        open_directory(workspace_of(root)) as workspace,
        locked([LockFile(workspace)], 1, clock),
        pytest.raises(InstallLockedError),
    ):
        undo(receipt, clock=clock)
    assert contents(root) == NEW


def test_a_damaged_receipt_is_an_error_that_removes_nothing(root: Path, bundle: Path) -> None:
    receipt = install(root, bundle).receipt_path
    receipt.write_text("{}")
    with pytest.raises(ConfigurationError, match="is no receipt"):
        undo(receipt)
    assert contents(root) == NEW
    assert find_receipts(root) == []
