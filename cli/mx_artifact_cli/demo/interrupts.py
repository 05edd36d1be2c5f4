"""Delays signals while resources are created, and turns the first signal into an interrupt.

Call it only from the main thread of a process that has no other threads: another thread would
receive the signals.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


@contextlib.contextmanager
def one_interrupt() -> Iterator[None]:
    """Let the first signal raise KeyboardInterrupt; later ones stay pending until the end."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        raise KeyboardInterrupt

    previous = {
        number: signal.signal(number, on_signal)
        for number in SIGNALS
        if signal.getsignal(number) != signal.SIG_IGN  # keep the effect of nohup
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Keep signals pending, so that none arrives between creating a thing and its clean-up."""
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
