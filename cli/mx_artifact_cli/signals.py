"""Handles SIGINT, SIGTERM and SIGHUP.

While a command works, they interrupt it. While it serves, they are requests to stop.

All functions may be called from the main thread only.
"""

from __future__ import annotations

import os
import select
import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


def _signals() -> list[signal.Signals]:
    """Return the signals to handle: without SIGHUP if it is ignored, as nohup does.

    SIGINT is always handled, although a shell sets it to "ignore" for background jobs.
    """
    ended_by_terminal = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if ended_by_terminal else [])]


def hold_signals() -> list[int]:
    """Make the signals do nothing, permanently; their numbers are appended to the returned list."""
    held: list[int] = []
    for number in _signals():
        signal.signal(number, lambda number, frame: held.append(number))
    return held


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    previous = {number: signal.signal(number, handler) for number in _signals()}
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)


@contextmanager
def interrupts() -> Iterator[None]:
    """Make the signals raise KeyboardInterrupt, so that everything is cleaned up in order.

    During the clean-up, only SIGINT raises it again.
    """
    unwinding = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal unwinding
        if unwinding and number != signal.SIGINT:
            return
        unwinding = True
        raise KeyboardInterrupt

    with _handled(on_signal):
        yield


@contextmanager
def on_stop_request(stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop` at the first signal. A later SIGINT interrupts a stop that takes too long.

    `stop` runs at any point of the main thread's work, so it must not acquire a lock.
    """
    requested = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal requested
        if not requested:
            requested = True
            stop()
        elif number == signal.SIGINT:
            raise KeyboardInterrupt

    with _handled(on_signal):
        yield


@contextmanager
def woken_by_signals() -> Iterator[Callable[[float | None], object]]:
    """Yield a function that blocks until a signal has arrived at any thread of this process.

    Its argument is the maximum time to wait [s]; None: no limit. Python runs handlers in the main
    thread only. If the kernel gives a signal to another thread, such as one of NIXL, nothing else
    would interrupt the wait of the main thread.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)  # Python's C handler writes to it
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def wait(timeout_seconds: float | None) -> None:
        if select.select([reader], [], [], timeout_seconds)[0]:
            os.read(reader, 1)

    try:
        yield wait
    finally:
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)


class StopRequest:
    """A request to stop this process; `stop_request` creates it."""

    def __init__(self, wait: Callable[[float | None], object]) -> None:
        self._wait = wait
        self._interruptible = False
        self.made = False

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Block until the request is made, or for `timeout_seconds`; return whether it is made."""
        if not self.made:
            self._wait(timeout_seconds)
        return self.made

    def run(self, work: Callable[[], object]) -> None:
        """Call `work`. The request interrupts it, as `interrupts` does; then this returns."""
        with suppress(KeyboardInterrupt):
            self._interruptible = True
            try:
                if not self.made:
                    work()
            finally:
                self._interruptible = False

    def make(self) -> None:
        """Make the request. Call this only in a signal handler of the main thread."""
        self.made = True
        if self._interruptible:
            raise KeyboardInterrupt


@contextmanager
def stop_request() -> Iterator[StopRequest]:
    """Yield a request to stop that the signals make, for commands that serve or follow."""
    with woken_by_signals() as wait:
        stop = StopRequest(wait)
        with on_stop_request(stop.make):
            yield stop
