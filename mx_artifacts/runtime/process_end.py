"""Closes objects on which others rely when their own process ends normally, not in its children."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

logger = logging.getLogger(__name__)


class Closable(Protocol):
    """What is closed when the process ends."""

    def close(self) -> None:
        """Close it. Idempotent."""
        ...


class ProcessEnd:
    """Closes each of its objects when the main thread has ended, unless they were closed before.

    That is at the end of a script, by an exception or sys.exit too, and of a process of
    `multiprocessing`; not where a signal or os._exit kills the process. A child of fork closes
    nothing: what it inherited is the parent's. All methods may be called from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: weakref.WeakSet[Closable] = weakref.WeakSet()
        self._is_registered = False
        os.register_at_fork(after_in_child=self._forget_all)

    def close_at_end(self, closable: Closable) -> None:
        """Close this at the end; it is not kept alive until then."""
        with self._lock:
            self._objects.add(closable)
            if not self._is_registered:
                self._is_registered = True
                _call_at_end(self._close_all)

    def forget(self, closable: Closable) -> None:
        """Close this no more: it is closed. Idempotent."""
        with self._lock:
            self._objects.discard(closable)

    def _close_all(self) -> None:
        with self._lock:
            objects = list(self._objects)
        for each in objects:
            try:
                each.close()
            except Exception:  # the process ends all the same
                logger.exception("could not close %r at the end of the process", each)

    def _forget_all(self) -> None:
        self._lock = threading.Lock()  # whoever held it in the parent is not here
        self._objects = weakref.WeakSet()


def _call_at_end(function: Callable[[], None]) -> None:
    """Register a function to be called when the main thread has ended.

    Handlers of `atexit` are called only after the threads of executors have ended, and so after the
    last attached target has left; in processes of `multiprocessing`, they are not called. The hook
    that `concurrent.futures` uses for its own end is called earlier and in both. It has no public
    name; if it does not exist, `atexit` is used.
    """
    register = getattr(threading, "_register_atexit", atexit.register)
    with suppress(RuntimeError):  # the end has begun
        register(function)


PROCESS_END = ProcessEnd()


class HomeProcess:
    """The process in which an object was created; a child process made by fork has a copy."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_this(self) -> bool:
        """Whether this is that process, and not a child of it."""
        return os.getpid() == self._pid
