"""SIGINT and SIGTERM: an interrupt while a command works, a request to stop while it serves.

Both functions may be called from the main thread only.
"""

from __future__ import annotations

import signal
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
def on_stop_request(stop: Callable[[], object]) -> Iterator[None]:
    """Let either signal call `stop`; a second SIGINT interrupts a stop that takes too long.

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

    with _handled({signal.SIGINT: on_signal, signal.SIGTERM: on_signal}):
        yield
