"""Waiting for a central server that starts later."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from mx_artifacts.artifacts.source.server_wait import ServerWait
from mx_artifacts.errors import BackendUnavailableError, RemoteError
from mx_artifacts.observability.catalogue import ServerAwaited
from mx_artifacts.observability.events import Event
from mx_artifacts.runtime.clock import FakeClock


def failing(times: int, error: Exception) -> Callable[[], str]:
    """Return what raises `error` so many times, then returns."""
    left = [error] * times

    def call() -> str:
        if left:
            raise left.pop()
        return "answer"

    return call


def test_it_waits_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    events: list[Event] = []
    clock = FakeClock()
    error = BackendUnavailableError("down")
    with caplog.at_level(logging.WARNING):
        waited = ServerWait(60.0, events=events.append, clock=clock).call(failing(5, error))
    assert waited == "answer"
    assert events == [ServerAwaited(error, 60.0)]
    assert len(caplog.records) == 1
    assert "MX_PUBLISH_TIMEOUT_SECS" in caplog.text


def test_it_ends_with_the_time() -> None:
    clock = FakeClock()
    started = clock.monotonic()
    with pytest.raises(BackendUnavailableError, match="down"):
        ServerWait(60.0, clock=clock).call(failing(1000, BackendUnavailableError("down")))
    assert clock.monotonic() - started == 60.0


def test_no_time_is_no_wait(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(BackendUnavailableError):
        ServerWait(0.0).call(failing(1, BackendUnavailableError("down")))
    assert not caplog.records


def test_other_errors_are_not_waited_out() -> None:
    with pytest.raises(RemoteError):
        ServerWait(60.0, clock=FakeClock()).call(failing(1, RemoteError("a stranger")))
