"""Receipts that a process keeps: always those that are there now."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from mx_artifacts.errors import InstallError
from mx_artifacts.filesystem.beneath import Directory
from mx_artifacts.filesystem.resolved_path import open_directory
from mx_artifacts.install.receipts import cache
from mx_artifacts.install.receipts.cache import remember
from mx_artifacts.install.receipts.receipt import (
    Receipt,
    load_receipt,
    load_receipt_in,
    save_receipt,
)
from tests.support.install_cases import NEW, install, make_bundle


@pytest.fixture(name="place")
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the receipt of an install of three entries, which is forgotten."""
    report = install(tmp_path / "root", make_bundle(tmp_path / "b.tar", NEW))
    monkeypatch.setattr(cache, "_recent", {})
    return report.receipt_path


@contextmanager
def held(place: Path) -> Iterator[tuple[Directory, str]]:
    with open_directory(place.parent) as directory:
        yield directory, place.name


def cached_receipt(place: Path) -> Receipt:
    with held(place) as (directory, name):
        return cache.cached_receipt(directory, name)


def save(place: Path, receipt: Receipt) -> None:
    with held(place) as (directory, name):
        save_receipt(directory, name, receipt)


def parsed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return a list that gets the path of each receipt that is parsed from here on."""
    paths: list[Path] = []

    def load(directory: Directory, name: str) -> Receipt:
        paths.append(directory.path / name)
        return load_receipt_in(directory, name)

    monkeypatch.setattr(cache, "load_receipt_in", load)
    return paths


def test_one_is_parsed_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = parsed(monkeypatch)
    assert cached_receipt(place) == cached_receipt(place) == load_receipt(place)
    assert paths == [place]


def test_a_receipt_that_this_process_wrote_is_not_parsed(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = parsed(monkeypatch)
    receipt = load_receipt(place)
    save(place, receipt)
    with held(place) as (directory, name):
        remember(directory, name, receipt)
    assert cached_receipt(place) == load_receipt(place) == receipt
    assert paths == []


def test_another_in_its_place_counts(place: Path) -> None:
    receipt = cached_receipt(place)
    save(place, replace(receipt, installed_at="later"))
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


def test_a_missing_or_damaged_record_is_not_returned(place: Path) -> None:
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
