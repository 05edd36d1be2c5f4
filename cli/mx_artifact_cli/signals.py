"""SIGINT, SIGTERM, SIGHUP: interrupts while a command works, requests to stop while it serves.

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
    """Return those to handle: not SIGHUP where it is ignored, as nohup does it.

    SIGINT always, which a shell sets to "ignore" for a job that it starts in the background.
    """
    ended_by_terminal = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if ended_by_terminal else [])]


def hold_signals() -> list[int]:
    """Let the signals do nothing but be noted in the list that is returned; for good."""
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
    """Make the signals raise KeyboardInterrupt, so that everything is unwound in order.

    Only a further SIGINT interrupts the unwinding.
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
    """Let each signal call `stop`; a second SIGINT interrupts a stop that takes too long.

    `stop` runs in the middle of anything the main thread does, so it must take no lock.
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
    """Yield a function that blocks until a signal has come, whichever thread of ours it came to.

    It takes how many seconds to wait at most; None: for ever. Handlers run in the main thread
    alone. The kernel may hand a signal to another thread, such as NIXL's, and then nothing else
    interrupts what the main thread waits for.
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
    """Whether this process was asked to stop; `stop_request` makes one."""

    def __init__(self, wait: Callable[[float | None], object]) -> None:
        self._wait = wait
        self._interruptible = False
        self.made = False

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Block until it is made, or for that long; return whether it is made."""
        if not self.made:
            self._wait(timeout_seconds)
        return self.made

    def run(self, work: Callable[[], object]) -> None:
        """Call `work`, which the request ends in its midst, as `interrupts` does; then go on."""
        with suppress(KeyboardInterrupt):
            self._interruptible = True
            try:
                if not self.made:
                    work()
            finally:
                self._interruptible = False

    def make(self) -> None:
        """Make the request; for a handler in the main thread."""
        self.made = True
        if self._interruptible:
            raise KeyboardInterrupt


@contextmanager
def stop_request() -> Iterator[StopRequest]:
    """Turn the signals into a request to stop, for what serves or follows until then."""
    with woken_by_signals() as wait:
        stop = StopRequest(wait)
        with on_stop_request(stop.make):
            yield stop
