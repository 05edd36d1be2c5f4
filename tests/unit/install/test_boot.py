"""Files that an install does not wait for, and a machine that stopped before they were written."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mx_artifacts.artifacts.factories import transfer_of_kind
from mx_artifacts.artifacts.tarred import TarredP2PArtifactTransfer
from mx_artifacts.bundle.rules import first_parts
from mx_artifacts.install.base import RootInstall, RootReport
from mx_artifacts.install.receipts.receipt import load_receipt
from mx_artifacts.install.staging import staging
from mx_artifacts.install.state import boot
from mx_artifacts.kinds.registry import get_kind
from tests.support.install_cases import contents, fill, install_roots, make_bundle
from tests.support.staged import received

FILES = {"a/x": b"x content", "a/y": b"y content", "b/z": b"z content"}
ENTRIES = replace(get_kind("generic"), merge_entry_of=first_parts(1))


@pytest.fixture(autouse=True)
def on_a_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else nothing outlives the machine, and tests may run in memory."""
    monkeypatch.setattr(staging, "lies_in_memory", lambda path: False)


@pytest.fixture
def boot_once_more(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def restart() -> None:
        for module in (boot, staging):
            monkeypatch.setattr(module, "boot_id", lambda: "another life")

    return restart


class Node:
    """A source, and a target that fetches from it."""

    def __init__(self, place: Path, *, durable: bool = False) -> None:
        self.root = place / "cold"
        self._ends = [
            transfer_of_kind(
                ENTRIES, bundle_root=place / "b", roots={"": place / where}, durable=durable
            )
            for where in ("warm", "cold")
        ]
        fill(place / "warm", FILES)

    @property
    def target(self) -> TarredP2PArtifactTransfer:
        return self._ends[1]

    def fetch(self, *, with_index: bool = True) -> tuple[RootReport, int]:
        """Return the report, and how many entries were staged."""
        staged = received(*self._ends, with_index=with_index)
        self.artifact_id = staged.source.artifact_id
        self.receipt = (report := self.target.install(staged)).receipt_path
        return report.roots[0], len(report.roots[0].installed)

    def is_installed(self) -> bool:
        return self.target.find_installed(self.artifact_id) is not None


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def lose(path: Path, content: bytes = b"") -> None:
    """Let a file be as a power cut left it: its status was on the disk, its content was not."""
    status = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_the_receipt_says_what_was_waited_for(tmp_path: Path) -> None:
    lazy, durable = Node(tmp_path / "lazy"), Node(tmp_path / "durable", durable=True)
    lazy.fetch()
    durable.fetch()
    assert load_receipt(lazy.receipt).roots[0].boot_id == boot.boot_id() != ""
    assert load_receipt(durable.receipt).roots[0].boot_id == ""


@pytest.mark.parametrize("knows", [True, False], ids=["lazy", "no boot id"])
def test_files_are_synced_where_no_receipt_could_doubt_them(
    node: Node, monkeypatch: pytest.MonkeyPatch, knows: bool
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(staging, "sync_file", synced.append)
    if not knows:
        monkeypatch.setattr(staging, "boot_id", lambda: "")
    node.fetch()
    assert len(synced) == (0 if knows else len(FILES))


def test_in_the_same_life_status_is_enough(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.fetch()
    monkeypatch.setattr(boot, "entry_state", None)  # nothing is read
    assert node.is_installed()
    assert node.fetch()[0].same == ("a", "b")


def test_files_that_were_on_the_disk_before_a_restart_are_still_installed(
    node: Node, boot_once_more: Callable[[], None]
) -> None:
    node.fetch()
    boot_once_more()
    assert node.is_installed()
    assert node.fetch()[0].same == ("a", "b")


@pytest.mark.parametrize("with_index", [True, False], ids=["index", "chunks"])
@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(lambda path: lose(path, bytes(9)), id="zeros"),
        pytest.param(lose, id="empty"),
        pytest.param(lambda path: path.write_bytes(b""), id="empty, with another time"),
        pytest.param(Path.unlink, id="no name"),
    ],
)
def test_entries_that_were_lost_at_a_restart_are_repaired(
    node: Node, boot_once_more: Callable[[], None], harm: Callable[[Path], None], with_index: bool
) -> None:
    node.fetch()
    harm(node.root / "a" / "x")
    boot_once_more()
    assert not node.is_installed()
    report, _ = node.fetch(with_index=with_index)
    assert (report.installed, report.kept) == (("a",), ("b",))
    assert "not on the disk" in report.repaired["a"]
    assert contents(node.root) == FILES
    assert node.is_installed()


def test_entries_that_the_engine_changed_are_kept(
    node: Node, boot_once_more: Callable[[], None]
) -> None:
    node.fetch()
    lose(node.root / "a" / "x")
    (node.root / "a" / "y").write_bytes(b"tuned by the engine")
    boot_once_more()
    report, _ = node.fetch()
    assert (report.installed, report.kept) == ((), ("a", "b"))
    assert contents(node.root)["a/y"] == b"tuned by the engine"


def test_durable_files_are_not_checked_after_a_restart(
    tmp_path: Path, boot_once_more: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path, durable=True)
    node.fetch()
    boot_once_more()
    monkeypatch.setattr(boot, "entry_state", None)
    assert node.is_installed()


def test_a_replaced_entry_is_not_checked_by_an_older_receipt(
    node: Node, boot_once_more: Callable[[], None], tmp_path: Path
) -> None:
    """Only the newest receipt of an entry does: the one before knew another content."""
    node.fetch()
    boot_once_more()
    install = RootInstall("", node.root, first_parts(1))
    newer = make_bundle(tmp_path / "newer.tar", {"a/x": b"other", "a/y": b"other"})
    install_roots([(install, newer)], replace=True)
    report, _ = node.fetch()
    assert (report.installed, report.kept) == ((), ("a", "b"))
    assert contents(node.root)["a/x"] == b"other"
