"""How to ask an endless workflow to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol


class Stop(Protocol):
    """A request to stop that other code makes, such as a handler of signals."""

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Block until the request is made, or for that long; return whether it is made."""
        ...

    def run(self, work: Callable[[], object]) -> None:
        """Call `work`, unless the request is made; the request may interrupt `work`."""
        ...


class StopEvent:
    """A `Stop` that another thread makes; it does not interrupt the work under way."""

    def __init__(self) -> None:
        self._made = threading.Event()

    def make(self) -> None:
        """Make the request. Idempotent; any thread."""
        self._made.set()

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Block until the request is made, or for that long; return whether it is made."""
        return self._made.wait(timeout_seconds)

    def run(self, work: Callable[[], object]) -> None:
        """Call `work`, unless the request is made."""
        if not self._made.is_set():
            work()
