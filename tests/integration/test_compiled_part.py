"""An artifact moves alike, whether many files at once are done in C or in Python (ADR 0020)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.compiled import WAYS, done
from tests.support.fleet import Fleet, fill_cache, running_fleet
from tests.support.install_cases import picture

LARGE_BYTES = 5 << 20  # of more than one block, and of more than one part


@pytest.fixture(name="fleet")
def _fleet(tmp_path: Path) -> Iterator[Fleet]:
    with running_fleet(tmp_path) as fleet:
        yield fleet


@pytest.fixture(name="cache")
def _cache(tmp_path: Path) -> Path:
    """Return a cache that has, beside files of its own kind, all that makes members unalike."""
    cache = fill_cache(tmp_path / "warm", file_bytes=10_000, large=LARGE_BYTES)
    (cache / "empty").touch()
    (cache / "program").write_bytes(b"#!/bin/sh")
    (cache / "program").chmod(0o755)
    (cache / "no_files").mkdir()
    (cache / "größe").write_bytes(b"name that is not ASCII")
    (cache / ("n" * 120)).write_bytes(b"name that needs a second header")
    for path in cache.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    return cache


@pytest.mark.parametrize("target", WAYS)
@pytest.mark.parametrize("source", WAYS)
def test_an_artifact_arrives_as_it_was(
    fleet: Fleet, cache: Path, tmp_path: Path, source: str, target: str
) -> None:
    cold = tmp_path / "cold"
    with done(source):
        fleet.publish(cache)
    with done(target):
        fleet.fetch(fleet.fetcher(), cold)
        assert picture(cold) == picture(cache)
        again = fleet.fetch(fleet.fetcher(), cold)
        assert (again.total_bytes, again.report.unchanged) == (0, True)
        (cold / "program").unlink()
        replaced = fleet.fetch(fleet.fetcher(), cold)
        assert 0 < replaced.total_bytes < 10_000  # existing files were looked at
        assert picture(cold) == picture(cache)


def test_both_seal_the_same_artifact(fleet: Fleet, cache: Path) -> None:
    ids = []
    for way in WAYS:
        with done(way):
            ids.append(fleet.publish(cache)[1].artifact_id)
    assert ids[0] == ids[1]
