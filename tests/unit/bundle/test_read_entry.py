"""Entries read a batch at a time: what befalls one of them is told of it, and of no other."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mx_artifacts.bundle.entry import EntryView
from mx_artifacts.bundle.layout import bundle_bytes, lay_out
from mx_artifacts.bundle.placement import EntryPlacement, PartFilled, batches
from mx_artifacts.bundle.read_entry import (
    EntryChangedError,
    EntryError,
    EntryReader,
    EntryUnfitError,
    Reading,
)
from mx_artifacts.bundle.rules import PackRules, first_parts
from mx_artifacts.bundle.tree import open_root, scan_tree
from mx_artifacts.core.digest import crc32c
from tests.support.packing import SETTLED
from tests.support.trees import write_tree

pytestmark = pytest.mark.usefixtures("each_bulk")

RULES = PackRules(entry_of=first_parts(1))


@pytest.fixture(name="root")
def _root(tmp_path: Path) -> Path:
    tree = {name: {"x": b"1234", "y": b"56"} for name in ("a", "b", "c")}
    return write_tree(tmp_path / "root", tree)


def no_part(offset: int, length: int) -> None:
    pytest.fail(f"no file is as large as to be told of in parts ({offset}, {length})")


def read(
    root: Path,
    meanwhile: Callable[[], object] = lambda: None,
    rules: PackRules = RULES,
    written: PartFilled = no_part,
) -> tuple[dict[str, EntryError], dict[str, EntryPlacement]]:
    """Read all entries of `root` in one batch, after something happened to what was listed."""
    layouts = lay_out(scan_tree(root, rules), rules)
    space = memoryview(bytearray(bundle_bytes(layouts)))
    readings: list[Reading] = []
    start = 0
    for layout in layouts:
        part = space[start : start + layout.length]
        readings.append(Reading(EntryPlacement(layout, start, part), start))
        start += layout.length
    with open_root(root) as directory:
        meanwhile()
        reader = EntryReader(directory, rules, 0.5, SETTLED.now)
        failed = reader.read(readings, space, SETTLED.now(), written)
    return failed, {reading.entry: reading.place for reading in readings}


def assert_read(place: EntryPlacement, contents: list[bytes]) -> None:
    assert place.checksums == [crc32c(content) for content in contents]
    for content, offset in zip(contents, place.layout.offsets, strict=True):
        assert place.space[offset : offset + len(content)] == content


def replace(path: Path) -> None:
    shutil.copy2(path, path.with_name("new"))
    os.rename(path.with_name("new"), path)


def become_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("../a/x")


def become_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "shorter": (lambda root: os.truncate(root / "b" / "x", 3), "b/x shrank while packed"),
    "longer": (lambda root: os.truncate(root / "b" / "x", 5), "b/x changed while packed"),
    "gone": (lambda root: os.unlink(root / "b" / "y"), "b/y vanished while packed"),
    "all gone": (lambda root: shutil.rmtree(root / "b"), "b/x vanished while packed"),
    "replaced": (lambda root: replace(root / "b" / "y"), "b/y changed while packed"),
    "a link": (lambda root: become_link(root / "b" / "x"), "b/x changed while packed"),
    "a directory": (lambda root: become_directory(root / "b" / "x"), "b/x changed while packed"),
    "one more file": (lambda root: (root / "b" / "z").touch(), "b changed while packed"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_only_the_entry_that_changed_fails(root: Path, change: str) -> None:
    do, reason = CHANGES[change]
    failed, places = read(root, lambda: do(root))
    assert [(entry, type(error), str(error)) for entry, error in failed.items()] == [
        ("b", EntryChangedError, reason)
    ]
    for entry in ("a", "c"):
        assert_read(places[entry], [b"", b"1234", b"56"])


def test_several_fail_each_for_its_own_reason(root: Path) -> None:
    def fault_of(entry: EntryView) -> str | None:
        return "damaged" if entry.path == "c" else None

    rules = PackRules(entry_of=first_parts(1), fault_of=fault_of)
    failed, places = read(root, lambda: os.unlink(root / "a" / "x"), rules)
    assert {entry: str(error) for entry, error in failed.items()} == {
        "a": "a/x vanished while packed",
        "c": "damaged",
    }
    assert type(failed["c"]) is EntryUnfitError
    assert_read(places["b"], [b"", b"1234", b"56"])


def test_a_fault_in_an_entry_that_changed_meanwhile_is_temporary(root: Path) -> None:
    def fault_of(entry: EntryView) -> str | None:
        if entry.path == "b":  # while it is judged, before its stamps are looked at
            replace(root / "b" / "x")
        return "damaged"

    failed, _ = read(root, rules=PackRules(entry_of=first_parts(1), fault_of=fault_of))
    assert {entry: type(error) for entry, error in failed.items()} == {
        "a": EntryUnfitError,
        "b": EntryChangedError,
        "c": EntryUnfitError,
    }


def test_a_root_that_goes_takes_all_with_it(root: Path) -> None:
    failed, _ = read(root, lambda: shutil.rmtree(root))
    assert failed.keys() == {"a", "b", "c"}
    assert all("vanished" in str(error) for error in failed.values())


def test_a_root_that_goes_while_entries_are_judged_takes_all_with_it(root: Path) -> None:
    def fault_of(entry: EntryView) -> str | None:
        shutil.rmtree(root, ignore_errors=True)
        return None

    failed, _ = read(root, rules=PackRules(entry_of=first_parts(1), fault_of=fault_of))
    assert {entry: str(error) for entry, error in failed.items()} == {
        entry: f"{entry}/x vanished while packed" for entry in "abc"
    }


def test_parts_of_large_files_are_reported_when_they_are_read(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mx_artifacts.bundle.read_entry._READ_BYTES", 4)
    large = os.urandom(11)
    (root / "b" / "x").write_bytes(large)
    told: list[tuple[int, int]] = []
    failed, places = read(root, written=lambda offset, length: told.append((offset, length)))
    assert not failed
    assert_read(places["b"], [b"", large, b"56"])
    start = places["a"].layout.length + places["b"].layout.offsets[1]
    assert told == [(start, 4), (start + 4, 4)]
    failed, _ = read(root, lambda: os.truncate(root / "b" / "x", 10), written=lambda *_: None)
    assert {entry: str(error) for entry, error in failed.items()} == {
        "b": "b/x shrank while packed"
    }


def test_batches_are_neighbours_and_hold_all(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layouts = lay_out(scan_tree(root, RULES), RULES)
    places = [EntryPlacement(layout, None, memoryview(b"")) for layout in layouts]
    assert list(batches(places)) == [places]
    monkeypatch.setattr("mx_artifacts.bundle.placement._BATCH_ENTRIES", 2)
    assert list(batches(places)) == [places[:2], places[2:]]
    monkeypatch.setattr("mx_artifacts.bundle.placement._BATCH_BYTES", layouts[0].length)
    assert list(batches(places)) == [[place] for place in places]
    assert list(batches([])) == []
