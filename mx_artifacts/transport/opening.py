"""Opens a transport in the background, for a caller that will probably need it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from mx_artifacts.transport.base import Transport
from mx_artifacts.transport.nixl import set_library_defaults
from mx_artifacts.transport.registry import open_target_transport


class OpeningTransport:
    """Opens a transport in the background: NIXL takes half a second, mostly waiting. Any thread.

    An error is raised when a caller takes the transport, and only then.
    """

    def __init__(self, open_: Callable[[], Transport] = open_target_transport) -> None:
        self._open = open_
        self._opened: Future[Transport] = Future()
        self._lock = threading.Lock()
        self._taken = self._abandoned = False
        set_library_defaults()
        threading.Thread(target=self._run, name="transport-opening", daemon=True).start()

    def _run(self) -> None:
        try:
            transport = self._open()
        except BaseException as error:
            self._opened.set_exception(error)
            return
        with self._lock:
            self._opened.set_result(transport)
            unwanted = self._abandoned and not self._taken
        if unwanted:
            transport.close()

    def take(self) -> Transport:
        """Wait for the transport and return it. It is the caller's from now on, to be closed.

        Raises:
            What opening it raises.
        """
        with self._lock:
            self._taken = True
        return self._opened.result()

    def close(self) -> None:
        """Close the transport unless it was taken. Waits for nothing. Idempotent."""
        with self._lock:
            opened = self._opened.done() and not self._taken and not self._abandoned
            self._abandoned = True
        if opened and self._opened.exception() is None:
            self._opened.result().close()
