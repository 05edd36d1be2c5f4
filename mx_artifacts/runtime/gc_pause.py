"""Pauses Python's cyclic garbage collector while many objects are made."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from mx_artifacts.runtime.process import is_claimed

_lock = threading.Lock()
_pauses = 0
_resume = False


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause cyclic garbage collection, in our own processes only, for steps of at most a second.

    A step that creates ten thousands of long-lived tuples triggers collections that visit all
    objects of the process again and again and free nothing: 0.05 to 0.1 s each time. Reference
    counting continues. A collector that was disabled stays disabled. The collector of an engine
    that uses the library is not changed.
    """
    if not is_claimed():
        yield
        return
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
                _promote_all()
                gc.enable()


def _promote_all() -> None:
    """Move all objects to the oldest generation without visiting them.

    The objects of the step live on for a while as a rule, so that the collection which is due now
    would visit them for nothing; a full collection still does.
    """
    if not gc.get_freeze_count():  # objects that the program has frozen stay frozen
        gc.freeze()
        gc.unfreeze()
