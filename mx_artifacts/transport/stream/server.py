"""The source side: one thread that accepts connections and sends what their tokens allow.

The thread never waits for a peer: sockets do not block, and a reader that takes no bytes delays no
other reader.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
import threading
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress

from mx_artifacts.runtime.clock import SYSTEM_CLOCK, Clock
from mx_artifacts.transport.stream import sockets
from mx_artifacts.transport.stream.connection import ReaderConnection, ReaderGone
from mx_artifacts.transport.stream.limits import StreamLimits, is_own_process
from mx_artifacts.transport.stream.regions import RegionTable

logger = logging.getLogger(__name__)

SWEEP_SECONDS = 0.5
"""Interval at which deadlines of connections are looked at."""
ACCEPTS_AT_ONCE = 64
"""Maximum number of connections accepted before readers have their turn."""
WARN_SECONDS = 60.0
"""Minimum time between two warnings, so that a flood of connections is none of the log."""
STOP_SECONDS = 5.0
"""Maximum time that `stop` waits for the thread, which never blocks."""


class StreamServer:
    """Serves the regions of `table` on `listeners`, which are its own from here on."""

    def __init__(
        self,
        table: RegionTable,
        listeners: Iterable[socket.socket],
        limits: StreamLimits,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._table = table
        self._listeners = list(listeners)
        self._limits = limits
        self._clock = clock
        self._process_id = os.getpid()
        self._selector = selectors.DefaultSelector()
        self._wake_up, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self._stopping = False
        self._accepting = False
        self._connections: dict[ReaderConnection, None] = {}  # in the order of their last request
        self._silent: dict[ReaderConnection, None] = {}  # of those, without a hello; oldest first
        self._of_peer: Counter[str] = Counter()
        self._swept_at = 0.0
        self._warned_at = -WARN_SECONDS
        self._thread = threading.Thread(target=self._run, name="mx-stream", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._listeners[0].getsockname()[1])

    @property
    def is_alive(self) -> bool:
        """Return whether it serves."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Close all connections and the listeners. Idempotent.

        In a forked child it leaves alone what is the parent's: the sockets are shared with it.
        """
        if not is_own_process(self._process_id):
            return
        self._stopping = True
        with suppress(OSError):
            self._wake_up.send(b"\0")
        self._thread.join(STOP_SECONDS)

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._selector.register(self._woken, selectors.EVENT_READ)
            self._accept_more(True)
            while not self._stopping:
                self._turn()
        except Exception:
            logger.exception("the stream transport stops serving")
        finally:
            for connection in list(self._connections):
                self._close(connection)
            self._selector.close()
            for each in (*self._listeners, self._woken, self._wake_up):
                each.close()

    def _turn(self) -> None:
        has_deadlines = self._connections or not self._accepting
        for key, _ in self._selector.select(SWEEP_SECONDS if has_deadlines else None):
            if isinstance(key.data, ReaderConnection):
                if key.data in self._connections:
                    self._serve(key.data)
            elif key.data is not None:
                self._accept(key.data)
        now = self._clock.monotonic()
        if now - self._swept_at >= SWEEP_SECONDS:
            self._swept_at = now
            self._sweep(now)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            if len(self._connections) >= self._limits.max_connections and not self._close_idle():
                self._accept_more(False)
                return
            try:
                accepted = sockets.accept(listener)
            except OSError as error:
                self._warn(f"accepts no connections for a moment: {error}")
                if not self._close_idle():
                    self._accept_more(False)
                return
            if accepted is None:
                return
            self._admit(*accepted)

    def _warn(self, what: str) -> None:
        """Log a warning, but not the same one all the time."""
        now = self._clock.monotonic()
        if now - self._warned_at >= WARN_SECONDS:
            self._warned_at = now
            logger.warning("the stream transport %s", what)

    def _admit(self, accepted: socket.socket, peer: str) -> None:
        share = int(self._limits.max_connections * self._limits.max_share)
        is_full = self._of_peer[peer] >= share and accepted.getsockname()[0] != peer
        if is_full and not self._close_idle(peer):
            accepted.close()
            return
        if len(self._silent) >= self._limits.max_silent:
            self._close(next(iter(self._silent)))
        connection = ReaderConnection(accepted, peer, self._table, self._limits, self._clock)
        self._connections[connection] = self._silent[connection] = None
        self._of_peer[peer] += 1
        self._selector.register(accepted, selectors.EVENT_READ, connection)
        try:
            connection.greet()
        except OSError:
            self._close(connection)

    def _serve(self, connection: ReaderConnection) -> None:
        was_sending = connection.is_sending
        try:
            connection.go_on()
        except (ReaderGone, OSError) as end:
            logger.debug("a reader at %s: %s", connection.peer, end)
            self._close(connection)
            return
        except Exception:  # one reader's failure must not end the service of the others
            logger.exception("a reader at %s", connection.peer)
            self._close(connection)
            return
        if connection.has_greeted:
            self._silent.pop(connection, None)
        self._connections[connection] = self._connections.pop(connection)
        if connection.is_sending != was_sending:
            waits_for = selectors.EVENT_WRITE if connection.is_sending else selectors.EVENT_READ
            self._selector.modify(connection.socket, waits_for, connection)

    def _sweep(self, now: float) -> None:
        for connection in [c for c in self._connections if c.is_overdue(now)]:
            logger.debug("a reader at %s took too long", connection.peer)
            self._close(connection)
        if not self._accepting:
            self._accept_more(True)

    def _close_idle(self, peer: str | None = None) -> bool:
        """Close the connection that has been idle for longest, of `peer` if one is named.

        Return whether there was one.
        """
        for connection in self._connections:
            if not connection.is_sending and peer in (None, connection.peer):
                self._close(connection)
                return True
        return False

    def _accept_more(self, accepting: bool) -> None:
        if accepting == self._accepting:
            return
        self._accepting = accepting
        for listener in self._listeners:
            if accepting:
                self._selector.register(listener, selectors.EVENT_READ, listener)
            else:
                self._selector.unregister(listener)

    def _close(self, connection: ReaderConnection) -> None:
        self._connections.pop(connection, None)
        self._silent.pop(connection, None)
        self._of_peer[connection.peer] -= 1
        if not self._of_peer[connection.peer]:
            del self._of_peer[connection.peer]
        with suppress(KeyError, ValueError):
            self._selector.unregister(connection.socket)
        connection.close()
