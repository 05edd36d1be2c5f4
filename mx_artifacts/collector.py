"""Python's cyclic garbage collector, and when it had better wait."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_pauses = 0
_resume = False


@contextmanager
def paused() -> Iterator[None]:
    """Let no collection begin meanwhile, in the whole process; for what takes a second at most.

    Who makes ten thousands of tuples that live on has all objects of the process gone over again
    and again, which finds nothing: 0.05 to 0.1 s each time in a process of ours, more in an
    engine's. Reference counts free what is free all the same. A collector that was off stays off.
    """
    global _pauses, _resume
    with _lock:
        if _pauses == 0:
            _resume = gc.isenabled()
            gc.disable()
        _pauses += 1
    try:
        yield
    finally:
        with _lock:
            _pauses -= 1
            if _pauses == 0 and _resume:
                gc.enable()
