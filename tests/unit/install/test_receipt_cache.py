"""Receipts that a process keeps: always those that stand there now."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from mx_artifacts.errors import InstallError
from mx_artifacts.install.receipts import cache
from mx_artifacts.install.receipts.cache import cached_receipt, remember
from mx_artifacts.install.receipts.receipt import Receipt, load_receipt, save_receipt
from tests.support.install_cases import NEW, install, make_bundle


@pytest.fixture(name="place")
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the receipt of an install of three entries, which is forgotten."""
    report = install(tmp_path / "root", make_bundle(tmp_path / "b.tar", NEW))
    monkeypatch.setattr(cache, "_recent", {})
    return report.receipt_path


def parsed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return a list that gets the path of each receipt that is parsed from here on."""
    paths: list[Path] = []

    def load(path: Path) -> Receipt:
        paths.append(path)
        return load_receipt(path)

    monkeypatch.setattr(cache, "load_receipt", load)
    return paths


def test_one_is_parsed_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = parsed(monkeypatch)
    assert cached_receipt(place) == cached_receipt(place) == load_receipt(place)
    assert paths == [place]


def test_what_was_written_here_is_not_parsed_at_all(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = parsed(monkeypatch)
    receipt = load_receipt(place)
    save_receipt(place, receipt)
    remember(place, receipt)
    assert cached_receipt(place) == load_receipt(place) == receipt
    assert paths == []


def test_another_in_its_place_counts(place: Path) -> None:
    receipt = cached_receipt(place)
    save_receipt(place, replace(receipt, installed_at="later"))
    assert cached_receipt(place).installed_at == "later"


def test_an_edit_in_place_counts(place: Path) -> None:
    cached_receipt(place)
    found = place.stat()
    document = json.loads(place.read_text())
    document["installed_at"] = document["installed_at"][::-1]  # of the same length
    with place.open("r+") as file:
        json.dump(document, file, separators=(",", ":"))
    os.utime(place, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert cached_receipt(place).installed_at == document["installed_at"]


def test_one_that_is_gone_or_damaged_is_not_returned(place: Path) -> None:
    cached_receipt(place)
    place.write_text("{}")
    with pytest.raises(InstallError, match="not a valid receipt"):
        cached_receipt(place)
    place.unlink()
    with pytest.raises(FileNotFoundError):
        cached_receipt(place)


def test_those_used_last_are_kept(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second, third = place.with_name("second.json"), place.with_name("third.json")
    for other in (second, third):
        other.write_bytes(place.read_bytes())
    files = sum(len(each.files) for each in load_receipt(place).roots[0].installed)
    monkeypatch.setattr(cache, "MAX_FILES", 2 * files)
    paths = parsed(monkeypatch)
    for path in (place, second, place, third, place, second):
        cached_receipt(path)
    assert paths == [place, second, third, second]
