"""What unit tests share."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator

import pytest

from mx_artifacts.runtime.clock import SystemClock
from tests.support.compiled import WAYS, done

LONGEST_POLL_SECONDS = 0.1


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


@pytest.fixture(autouse=True)
def no_sleep(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a unit test in which our code sleeps by the machine's clock, but for a short poll."""
    if request.node.get_closest_marker("process"):
        return

    def sleep(_clock: SystemClock, seconds: float) -> None:
        assert seconds <= LONGEST_POLL_SECONDS, "a unit test hands in a FakeClock"
        time.sleep(seconds)

    monkeypatch.setattr(SystemClock, "sleep", sleep)
