"""One reader's connection, at the source: greeting, hello, then requests and answers in turn."""

from __future__ import annotations

import secrets
import socket
from collections import deque

from mx_artifacts.runtime.clock import Clock
from mx_artifacts.transport.stream.frames import (
    HELLO_BYTES,
    MAX_REQUEST_BYTES,
    NONCE_BYTES,
    FrameError,
    Status,
    decode_hello,
    decode_request,
    encode_greeting,
    request_length,
)
from mx_artifacts.transport.stream.limits import StreamLimits
from mx_artifacts.transport.stream.regions import RegionTable

SEND_BYTES = 1 << 20
"""Maximum number of bytes given to the kernel by one call, which copies them."""
SENDS_AT_ONCE = 4
"""Maximum number of such calls before other readers have their turn."""


class ReaderGone(Exception):
    """The connection is to be closed: the reader hung up, or sent what no reader of ours sends."""


class ReaderConnection:
    """A connected reader. One thread; never blocks."""

    def __init__(
        self,
        connected: socket.socket,
        peer: str,
        table: RegionTable,
        limits: StreamLimits,
        clock: Clock,
    ) -> None:
        self.socket = connected
        self.peer = peer
        self._table = table
        self._limits = limits
        self._clock = clock
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        self._grant: int | None = None
        self._input = bytearray()
        self._output: deque[memoryview] = deque()
        self._taken_bytes = 0
        self._ends_after_output = False
        self._deadline = clock.monotonic() + limits.hello_seconds

    def greet(self) -> None:
        """Send the greeting, for which a new connection has room.

        Raises:
            OSError: close it.
        """
        self.socket.send(encode_greeting(self._nonce))

    @property
    def has_greeted(self) -> bool:
        """Return whether the reader proved that it has a token of ours."""
        return self._grant is not None

    @property
    def is_sending(self) -> bool:
        """Return whether the reader has not taken all that it asked for."""
        return bool(self._output)

    def is_overdue(self, now: float) -> bool:
        """Return whether to close it, since the reader is silent or takes too little."""
        if now < self._deadline:
            return False
        if self.is_sending and self._taken_bytes >= self._limits.min_progress_bytes:
            self._taken_bytes = 0
            self._deadline = now + self._limits.progress_seconds
            return False
        return True

    def go_on(self) -> None:
        """Do what can be done without waiting.

        Raises:
            ReaderGone, OSError: close it.
        """
        if not self._output:
            self._receive()
        if self._output:
            self._send()

    def close(self) -> None:
        """Hang up; what is being sent is let go."""
        self._output.clear()
        self.socket.close()

    def _receive(self) -> None:
        try:
            data = self.socket.recv(HELLO_BYTES + MAX_REQUEST_BYTES - len(self._input))
        except BlockingIOError:
            return
        if not data:
            raise ReaderGone("it hung up")
        if self.has_greeted and not self._input:  # a request has begun
            self._deadline = self._clock.monotonic() + self._limits.hello_seconds
        self._input += data
        try:
            self._take_hello()
            self._take_request()
        except FrameError as error:
            raise ReaderGone(str(error)) from None

    def _take_hello(self) -> None:
        if self.has_greeted or len(self._input) < HELLO_BYTES:
            return
        serial, proof = decode_hello(bytes(self._input[:HELLO_BYTES]))
        if not self._table.is_granted(serial, proof, self._nonce):
            self._refuse(Status.UNKNOWN_TOKEN)
            return
        self._grant = serial
        del self._input[:HELLO_BYTES]
        self._deadline = self._clock.monotonic() + self._limits.idle_seconds

    def _take_request(self) -> None:
        if self._grant is None or self._output:
            return
        length = request_length(self._input)
        if length is None or len(self._input) < length:
            return
        if len(self._input) > length:
            raise FrameError("it sent another request before it received the answer")
        views = self._table.find(decode_request(self._input), self._grant)
        self._input.clear()
        if views is None:
            self._refuse(Status.NOT_REGISTERED)
            return
        self._output.append(memoryview(bytes((Status.OK,))))
        self._output += views
        self._taken_bytes = 0
        self._deadline = self._clock.monotonic() + self._limits.progress_seconds

    def _refuse(self, status: Status) -> None:
        self._output.append(memoryview(bytes((status,))))
        self._ends_after_output = True

    def _send(self) -> None:
        for _ in range(SENDS_AT_ONCE):
            if not self._output:
                break
            first = self._output[0]
            try:
                if len(first) == 1 and len(self._output) > 1:  # the status goes with the bytes
                    sent = self.socket.sendmsg([first, self._output[1][:SEND_BYTES]])
                else:
                    sent = self.socket.send(first[:SEND_BYTES])
            except BlockingIOError:
                return
            self._sent(sent)
        if not self._output:
            if self._ends_after_output:
                raise ReaderGone("it was refused")
            self._deadline = self._clock.monotonic() + self._limits.idle_seconds

    def _sent(self, count: int) -> None:
        self._taken_bytes += count
        while count:
            first = self._output[0]
            if count < len(first):
                self._output[0] = first[count:]
                return
            count -= len(first)
            self._output.popleft()
