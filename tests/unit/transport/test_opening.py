"""A transport that is opened while nobody has asked for it yet."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from mx_artifacts.errors import TransportUnavailableError
from mx_artifacts.transport.inproc import InprocTransport
from mx_artifacts.transport.opening import OpeningTransport

WAIT_SECONDS = 10.0


class SlowStart:
    """Opens a transport, or fails, when it is let go."""

    def __init__(self, *, fails: bool = False) -> None:
        self.let_go = threading.Event()
        self.closed = threading.Event()
        self._fails = fails

    def open(self) -> InprocTransport:
        assert self.let_go.wait(WAIT_SECONDS)
        if self._fails:
            raise TransportUnavailableError("none here")
        transport = InprocTransport("early")
        close = transport.close

        def close_and_tell() -> None:
            close()
            self.closed.set()

        transport.close = close_and_tell  # type: ignore[method-assign]
        return transport


@pytest.fixture
def slow() -> Iterator[SlowStart]:
    start = SlowStart()
    yield start
    start.let_go.set()


def test_the_caller_that_takes_the_transport_waits_for_it_and_owns_it(slow: SlowStart) -> None:
    opening = OpeningTransport(slow.open)
    threading.Timer(0.05, slow.let_go.set).start()
    transport = opening.take()
    opening.close()
    assert transport.agent_name == "early"
    assert not slow.closed.is_set()
    transport.close()


def test_a_transport_that_is_not_taken_is_closed_and_not_waited_for(slow: SlowStart) -> None:
    opening = OpeningTransport(slow.open)
    opening.close()
    assert not slow.closed.is_set()
    slow.let_go.set()
    assert slow.closed.wait(WAIT_SECONDS)
    opening.close()


def test_one_that_is_open_already_is_closed_at_once(slow: SlowStart) -> None:
    slow.let_go.set()
    opening = OpeningTransport(slow.open)
    opening._opened.result(WAIT_SECONDS)
    opening.close()
    assert slow.closed.wait(WAIT_SECONDS)


def test_an_error_is_raised_only_when_the_transport_is_taken(
    capfd: pytest.CaptureFixture[str],
) -> None:
    slow = SlowStart(fails=True)
    slow.let_go.set()
    unwanted = OpeningTransport(slow.open)
    assert isinstance(unwanted._opened.exception(WAIT_SECONDS), TransportUnavailableError)
    unwanted.close()
    opening = OpeningTransport(slow.open)
    with pytest.raises(TransportUnavailableError, match="none here"):
        opening.take()
    opening.close()
    assert capfd.readouterr() == ("", "")
