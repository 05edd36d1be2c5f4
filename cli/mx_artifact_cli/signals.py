"""SIGINT and SIGTERM: an interrupt while a command works, a request to stop while it serves.

Both functions may be called from the main thread only.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any]


@contextmanager
def _handled(handlers: dict[signal.Signals, Handler]) -> Iterator[None]:
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def interrupts() -> Iterator[None]:
    """Make both signals raise KeyboardInterrupt, so that everything is unwound in order.

    SIGINT too, which a shell sets to "ignore" for a job that it starts in the background.
    Only a further SIGINT interrupts the unwinding.
    """
    unwinding = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal unwinding
        if unwinding and number == signal.SIGTERM:
            return
        unwinding = True
        raise KeyboardInterrupt

    with _handled({signal.SIGINT: on_signal, signal.SIGTERM: on_signal}):
        yield


@contextmanager
def stop_requests() -> Iterator[threading.Event]:
    """Yield an event that either signal sets; a second SIGINT interrupts what takes too long."""
    stop = threading.Event()

    def on_sigint(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    with _handled({signal.SIGINT: on_sigint, signal.SIGTERM: lambda number, frame: stop.set()}):
        yield stop
