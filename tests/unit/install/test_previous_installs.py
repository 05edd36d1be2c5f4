"""What is in roots as earlier installs put it there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mx_artifacts.bundle.rules import first_parts
from mx_artifacts.install.base import RootInstall
from mx_artifacts.install.state import boot, previous_installs
from mx_artifacts.install.state.previous_installs import PreviousInstalls
from tests.support.install_cases import install, make_bundle

OLD = {"k1/a": b"one", "k1/b": b"two", "k2/a": b"three", "k3": b"four"}


def root_of(root: Path) -> RootInstall:
    return RootInstall("", root, first_parts(1))


def standing(root: Path) -> list[str]:
    found = PreviousInstalls([root_of(root)]).unchanged_entries(root)
    return sorted(entry.entry for entry in found)


@pytest.fixture(name="root")
def _root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    install(root, make_bundle(tmp_path / "old.tar", OLD))
    return root


def test_untouched_entries_are_unchanged(root: Path) -> None:
    assert standing(root) == ["k1", "k2", "k3"]


def test_changed_removed_and_replaced_entries_are_not_unchanged(root: Path) -> None:
    (root / "k1/b").unlink()
    (root / "k2/a").write_bytes(b"longer than before")
    (root / "k3").unlink()
    (root / "k3").symlink_to("k1/a")
    assert standing(root) == []


def test_the_newest_receipt_decides_about_an_entry(root: Path, tmp_path: Path) -> None:
    new = make_bundle(tmp_path / "new.tar", {"k1/a": b"another one"})
    install(root, new, replace=True)
    found = PreviousInstalls([root_of(root)])
    sizes = {
        entry.entry: [file.size for file in entry.files] for entry in found.unchanged_entries(root)
    }
    assert sizes == {"k1": [11], "k2": [5], "k3": [4]}
    assert len(found.receipts(root)) == 2


def test_the_files_of_another_boot_are_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    time_ns = (root / "k1/a").stat().st_mtime_ns
    (root / "k1/a").write_bytes(b"eno")
    os.utime(root / "k1/a", ns=(time_ns, time_ns))
    assert standing(root) == ["k1", "k2", "k3"]  # the status is all that is looked at
    monkeypatch.setattr(boot, "boot_id", lambda: "another")
    assert standing(root) == ["k2", "k3"]


def test_a_root_without_an_install_has_no_unchanged_entries(tmp_path: Path) -> None:
    assert standing(tmp_path / "absent") == []
    assert PreviousInstalls([]) is not None


def test_an_error_of_the_background_thread_is_raised_to_the_caller(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Path) -> list[object]:
        raise PermissionError("no entry")

    monkeypatch.setattr(previous_installs, "find_receipts", fail)
    with pytest.raises(PermissionError, match="no entry"):
        standing(root)
