"""What unit tests share."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from tests.support.compiled import WAYS, done


@pytest.fixture(scope="module", params=WAYS)
def each_bulk(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let a module's tests run with the compiled part, where it was built, and without it."""
    with done(request.param):
        yield


@pytest.fixture(autouse=True)
def no_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a unit test that starts a process without the mark that keeps it out of `make unit`."""
    if request.node.get_closest_marker("process"):
        return

    def refuse(*_arguments: object, **_options: object) -> None:
        raise AssertionError("a unit test starts no process, or has @pytest.mark.process")

    for name in ("fork", "posix_spawn", "posix_spawnp"):
        monkeypatch.setattr(os, name, refuse)
    monkeypatch.setattr(subprocess.Popen, "__init__", refuse)
