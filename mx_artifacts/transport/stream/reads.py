"""A read, at the target: one thread waits for it, and other threads may poll it.

Bytes move only while a thread waits for the read or asks whether it is done. So the destination
memory never changes at any other time.
"""

from __future__ import annotations

import errno
import select
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from mx_artifacts.errors import (
    MxArtifactsError,
    PeerLostError,
    ReadTimeoutError,
    TransportError,
)
from mx_artifacts.runtime.clock import SYSTEM_CLOCK, Clock
from mx_artifacts.transport.stream import sockets
from mx_artifacts.transport.stream.frames import (
    GREETING_BYTES,
    FrameError,
    Status,
    StreamDescriptor,
    decode_greeting,
    encode_hello,
)

PROGRESS_SECONDS = 30.0
"""A source that sends nothing for so long is lost; it may have been stopped for a while."""
MAX_RETRIES = 5
"""Maximum number of connections in a row that a source may close before it has answered."""
SLICE_SECONDS = 0.25
"""Maximum time in one system call: a read that is aborted while it connects ends within it."""
POLLED_BYTES = 4 << 20
"""Maximum number of bytes that one `done` takes, which must be quick."""

FIREWALL_HINT = (
    "see that the source runs, and that the firewall lets this node reach the source's stream port "
    "(MX_WORKER_STREAM_PORT, docs/operations/network.md)"
)


class Connection:
    """A connection to a source, which is used by one read at a time."""

    def __init__(self, connecting: socket.socket, descriptor: StreamDescriptor) -> None:
        self.socket = connecting
        self.descriptor = descriptor
        self.is_connected = False
        self._greeting = b""

    @property
    def is_greeted(self) -> bool:
        """Whether the source has greeted; only then may anything be sent."""
        return len(self._greeting) == GREETING_BYTES

    def take_greeting(self) -> bytes:
        """Receive (more of) the greeting; return the hello that answers it, b"" before that.

        Raises:
            BlockingIOError: nothing is there now.
            OSError: the source hung up.
            FrameError: it is no source of ours.
        """
        data = self.socket.recv(GREETING_BYTES - len(self._greeting))
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, "it closed the connection")
        self._greeting += data
        if not self.is_greeted:
            return b""
        nonce = decode_greeting(self._greeting)
        return encode_hello(self.descriptor.serial, self.descriptor.token, nonce)

    def close(self) -> None:
        self.socket.close()


def stranger(where: str, why: str) -> TransportError:
    """Return the error of a peer that is none."""
    return TransportError(
        f"the program that answers at {where} does not speak the stream protocol: {why}",
        hint="check which program listens there, and whether both ends run the same release",
    )


class ReadPeer(Protocol):
    """What a read needs of the source that it is from."""

    @property
    def where(self) -> str:
        """host:port, for messages."""
        ...

    def take(self, *, fresh: bool) -> Connection:
        """Return a connection; a new one if `fresh`. Raises PeerLostError."""
        ...

    def give_back(self, connection: Connection) -> None:
        """Take back a connection whose answer was read to its end."""
        ...


class StreamRead:
    """A posted read: some requests, one after the other, and where their answers go."""

    def __init__(
        self,
        peer: ReadPeer,
        requests: Sequence[tuple[bytes, Sequence[memoryview]]],
        on_end: Callable[[StreamRead], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Ask for the first; `requests` pairs each request with what its answer fills."""
        self._peer = peer
        self._requests = deque(requests)
        self._on_end = on_end
        self._clock = clock
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._unsent = b""
        self._answered = False
        self._retries = 0
        self._views: deque[memoryview] = deque()
        self._ended = False
        self._aborted = False
        self._error: MxArtifactsError | None = None
        self._moved_at = clock.monotonic()
        with self._lock:
            self._guarded(self._begin)

    def done(self) -> bool:
        if self._ended:
            return True
        if not self._lock.acquire(blocking=False):
            return False  # somebody waits for it
        try:
            self._guarded(self._poll)
        finally:
            self._lock.release()
        return self._ended

    def wait(self, timeout_seconds: float) -> None:
        deadline = self._clock.monotonic() + timeout_seconds
        with self._lock:
            while not self._ended:
                remaining = deadline - self._clock.monotonic()
                self._guarded(lambda: self._go_on(max(0.0, remaining)))  # noqa: B023 - called now
                if remaining <= 0 and not self._ended:
                    raise ReadTimeoutError(
                        f"a read from {self._peer.where} did not end in {timeout_seconds:g} s",
                        hint=FIREWALL_HINT,
                    )
        if self._error is not None:
            raise self._error

    def abort(self, error: TransportError) -> None:
        """End the read with `error`, as soon as no thread receives for it. Any thread."""
        self._error = self._error or error
        self._aborted = True
        connection = self._connection
        if connection is not None:
            with suppress(OSError):
                connection.socket.shutdown(socket.SHUT_RDWR)  # wakes who waits
        if self._lock.acquire(blocking=False):
            try:
                self._end()
            finally:
                self._lock.release()

    # --- under the lock --------------------------------------------------------------------------

    def _guarded(self, step: Callable[[], object]) -> None:
        """Do a step, and end the read by what it raises."""
        if self._ended:
            return
        try:
            if not self._aborted:
                step()
        except MxArtifactsError as error:
            self._fail(error)
        except FrameError as error:
            self._fail(stranger(self._peer.where, str(error)))
        except OSError as error:
            self._lost(error.strerror or str(error))
        if self._aborted:
            self._end()

    def _begin(self, *, fresh: bool = False) -> None:
        request, views = self._requests[0]
        if self._connection is None:
            self._connection = self._peer.take(fresh=fresh)
        self._unsent = request
        self._views = deque(views)
        self._answered = False
        self._go_on(0.0)

    def _poll(self) -> None:
        for _ in range(POLLED_BYTES >> 16):
            if self._ended or not self._go_on(0.0):
                return

    def _go_on(self, wait_seconds: float) -> bool:
        """Do one step, waiting so long if need be; return whether something was done."""
        connection = self._connection
        assert connection is not None, "a read that has not ended has a connection"
        try:
            if not connection.is_connected:
                return self._finish_connecting(connection, wait_seconds)
            if not connection.is_greeted:
                self._unsent = connection.take_greeting() + self._unsent
            elif self._unsent:
                self._unsent = self._unsent[connection.socket.send(self._unsent) :]
            elif not self._answered:
                self._take_status(connection)
            else:
                self._take_bytes(connection)
        except BlockingIOError:
            if self._clock.monotonic() - self._moved_at > PROGRESS_SECONDS:
                self._lost(f"it sent nothing for {PROGRESS_SECONDS:g} s")
                return True
            if wait_seconds:
                self._wait_for(
                    connection, wait_seconds, writable=connection.is_greeted and bool(self._unsent)
                )
            return False
        self._moved_at = self._clock.monotonic()
        return True

    def _wait_for(self, connection: Connection, seconds: float, *, writable: bool) -> bool:
        poller = select.poll()
        poller.register(connection.socket, select.POLLOUT if writable else select.POLLIN)
        return bool(poller.poll(min(seconds, SLICE_SECONDS) * 1000))

    def _finish_connecting(self, connection: Connection, wait_seconds: float) -> bool:
        if not self._wait_for(connection, wait_seconds, writable=True):
            if self._clock.monotonic() - self._moved_at > sockets.CONNECT_SECONDS:
                raise PeerLostError(
                    f"{self._peer.where} did not accept a connection in "
                    f"{sockets.CONNECT_SECONDS:g} s",
                    hint=FIREWALL_HINT,
                )
            return False
        error = sockets.connect_error(connection.socket)
        if error is not None:
            raise error
        connection.is_connected = True
        self._moved_at = self._clock.monotonic()
        return True

    def _take_status(self, connection: Connection) -> None:
        status = connection.socket.recv(1)
        if not status:
            self._lost("it closed the connection")
            return
        if status[0] == Status.UNKNOWN_TOKEN:
            raise PeerLostError(f"the agent at {self._peer.where} is not the same as before")
        if status[0] == Status.NOT_REGISTERED:
            raise TransportError(
                f"a range to read is not in any region that the agent at {self._peer.where} "
                "registered before it made its descriptor",
                hint="connect with a descriptor made after the memory was registered",
            )
        if status[0] != Status.OK:
            raise stranger(self._peer.where, f"status {status[0]}")
        self._answered = True

    def _take_bytes(self, connection: Connection) -> None:
        view = self._views[0]
        count = connection.socket.recv_into(view)
        if not count:
            self._lost("it closed the connection in the middle")
        elif count < len(view):
            self._views[0] = view[count:]
        else:
            self._views.popleft()
            if not self._views:
                self._finish_request(connection)

    def _finish_request(self, connection: Connection) -> None:
        self._requests.popleft()
        self._retries = 0
        if self._requests:
            self._begin()
            return
        self._connection = None
        self._peer.give_back(connection)
        self._end()

    def _lost(self, why: str) -> None:
        connection = self._connection
        has_connected = connection is not None and connection.is_connected
        may_retry = has_connected and not self._answered and self._retries < MAX_RETRIES
        if may_retry and not self._aborted:
            # A source with many readers closes connections that are idle, or new; nothing of this
            # answer had come. One that has ended refuses the next connection.
            self._retries += 1
            self._drop()
            self._guarded(lambda: self._begin(fresh=True))
            return
        self._fail(
            PeerLostError(f"the agent at {self._peer.where} is lost: {why}", hint=FIREWALL_HINT)
        )

    def _fail(self, error: MxArtifactsError) -> None:
        self._error = self._error or error
        self._end()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _end(self) -> None:
        if self._ended:
            return
        self._drop()
        self._views.clear()
        self._requests.clear()
        self._ended = True
        self._on_end(self)
