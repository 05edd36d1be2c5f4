"""The journal on its own: what is written is read again, and nothing else is believed."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mx_artifacts.errors import RollbackFailedError
from mx_artifacts.filesystem.beneath import Directory
from mx_artifacts.filesystem.resolved_path import open_directory
from mx_artifacts.install import journal as journal_module
from mx_artifacts.install.journal import (
    EmptyRoot,
    Journal,
    Move,
    is_committed,
    load_journal,
    save_journal,
)

RECEIPT = "20200101T000000Z-abababababab.json"
JOURNAL = Journal("1-x", f"/cache/.mx-artifacts.root/receipts/{RECEIPT}", ())


@pytest.fixture(name="place")
def _place(tmp_path: Path) -> Iterator[Directory]:
    with open_directory(tmp_path) as directory:
        yield directory


def document(**changes: Any) -> dict[str, Any]:
    """Return a valid journal as it lies on the disk, with `changes`."""
    return {
        "staged": "1-x",
        "receipt": JOURNAL.receipt,
        "moves": [{"entry": "k1", "inode": 7, "replaces": False}],
        "new_directories": [],
        "empty_root": None,
        **changes,
    }


def write(place: Directory, content: object) -> None:
    (place.path / "journal.json").write_text(json.dumps(content))


# --- what is written -----------------------------------------------------------------------------

parts = st.text(
    st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=5
).filter(lambda part: part not in (".", ".."))
paths = st.lists(parts, min_size=1, max_size=3).map("/".join)
moves = st.builds(Move, paths | st.just(""), st.integers(0, 2**64), st.booleans())
journals = st.builds(
    Journal,
    parts,
    st.just(JOURNAL.receipt),
    st.lists(moves, max_size=3).map(tuple),
    st.lists(paths, max_size=3).map(tuple),
    st.none() | st.builds(EmptyRoot, st.integers(0, 0o7777), st.integers(0), st.integers(0)),
)


@given(journals)
def test_a_journal_is_read_as_it_was_written(journal: Journal) -> None:
    with tempfile.TemporaryDirectory() as name, open_directory(Path(name)) as place:
        save_journal(place, journal)
        assert load_journal(place) == journal


def test_names_that_are_not_utf8_are_read_as_they_were_written(place: Directory) -> None:
    name = os.fsdecode(b"k\xff")
    journal = Journal("1-x", JOURNAL.receipt, (Move(name, 1, replaces=True),), (name,))
    save_journal(place, journal)
    assert load_journal(place) == journal


def test_there_is_none_until_one_is_written(place: Directory) -> None:
    assert load_journal(place) is None
    save_journal(place, JOURNAL)
    assert load_journal(place) == JOURNAL
    place.remove("journal.json")
    assert load_journal(place) is None


# --- what is not believed ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        document(staged="../x"),
        document(staged="x/y"),
        document(staged=""),
        document(staged=1),
        document(moves={}),
        document(moves=[1]),
        document(moves=[{"entry": "../k1", "inode": 7, "replaces": False}]),
        document(moves=[{"entry": "/etc", "inode": 7, "replaces": False}]),
        document(moves=[{"entry": "k1/../../x", "inode": 7, "replaces": False}]),
        document(moves=[{"entry": "k1", "inode": "7", "replaces": False}]),
        document(moves=[{"entry": "k1", "inode": True, "replaces": False}]),
        document(moves=[{"entry": "k1", "inode": 7, "replaces": 1}]),
        document(moves=[{"entry": "k1", "inode": 7}]),
        document(new_directories=["a", ".."]),
        document(new_directories=[1]),
        document(empty_root={"mode": 0o755, "uid": 0}),
        document(empty_root={"mode": 0o755, "uid": 0, "gid": False}),
        document(empty_root="yes"),
        document(receipt="/etc/shadow"),
        document(receipt=f"/cache/.mx-artifacts.root/staging/{RECEIPT}"),
        document(receipt="/cache/.mx-artifacts.root/receipts/../journal.json"),
        document(receipt="/cache/.mx-artifacts.root/receipts/passwd"),
        document(receipt=f"/cache/.mx-artifacts.root/receipts/sub/{RECEIPT}"),
        document(receipt=f"/cache/x.mx-artifacts/receipts/{RECEIPT}"),
        document(receipt=f"receipts/{RECEIPT}"),
        [],
        "journal",
    ],
)
def test_a_journal_that_is_damaged_or_edited_is_refused_with_what_to_do(
    place: Directory, content: object
) -> None:
    write(place, content)
    with pytest.raises(RollbackFailedError, match=r"journal\.json is not a valid") as caught:
        load_journal(place)
    assert str(place.path) in caught.value.hint()


def test_the_document_that_these_change_is_valid(place: Directory) -> None:
    write(place, document())
    assert load_journal(place) == Journal("1-x", JOURNAL.receipt, (Move("k1", 7, False),))
    inside = f"/cache/root/.mx-artifacts/receipts/{RECEIPT}"
    write(place, document(receipt=inside))
    journal = load_journal(place)
    assert journal is not None
    assert journal.receipt == inside


def test_a_journal_must_be_a_regular_file(place: Directory) -> None:
    (place.path / "elsewhere").write_text(json.dumps(document()))
    (place.path / "journal.json").symlink_to("elsewhere")
    with pytest.raises(RollbackFailedError, match="not a valid"):
        load_journal(place)
    (place.path / "journal.json").unlink()
    os.mkfifo(place.path / "journal.json")
    with pytest.raises(RollbackFailedError, match="not a valid"):
        load_journal(place)


def test_one_that_is_too_long_is_not_read(
    place: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_journal(place, JOURNAL)
    size = (place.path / "journal.json").stat().st_size
    monkeypatch.setattr(journal_module, "MAX_JOURNAL_BYTES", size)
    assert load_journal(place) == JOURNAL
    monkeypatch.setattr(journal_module, "MAX_JOURNAL_BYTES", size - 1)
    with pytest.raises(RollbackFailedError, match="not a valid"):
        load_journal(place)


# --- whether it is committed ---------------------------------------------------------------------


def receipt_below(directory: Path) -> tuple[Journal, Path]:
    path = directory / ".mx-artifacts.root" / "receipts" / RECEIPT
    return Journal("1-x", str(path), ()), path


def test_it_is_committed_from_the_moment_its_receipt_has_its_name(tmp_path: Path) -> None:
    journal, path = receipt_below(tmp_path)
    assert not is_committed(journal)
    path.parent.mkdir(parents=True)
    assert not is_committed(journal)
    (path.parent / f".tmp-{RECEIPT}").touch()
    assert not is_committed(journal)
    path.touch()
    assert is_committed(journal)


def test_it_is_not_where_the_way_to_the_receipt_is_something_else(tmp_path: Path) -> None:
    journal, path = receipt_below(tmp_path)
    path.parent.parent.mkdir()
    path.parent.write_text("a file")
    assert not is_committed(journal)
