"""Signals while things are made that must be cleaned up: one interrupt, at a time that suits.

From the main thread of a process without others only: another thread would take the signals.
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
        if signal.getsignal(number) != signal.SIG_IGN  # nohup stays nohup
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Keep signals pending, so that what is made and its clean-up come as one."""
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
