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
                _take_for_old()
                gc.enable()


def _take_for_old() -> None:
    """Count all that lives as old, without looking at it.

    What was made meanwhile lives on for a while as a rule, so that the collection which is due now
    would go over it for nothing; a full one still does.
    """
    if not gc.get_freeze_count():  # what the program has frozen stays so
        gc.freeze()
        gc.unfreeze()
