"""A target's session at a source: one stream that is open while the target reads.

The source binds leases to the stream and frees them when it ends, so a target that dies blocks
nothing (proto/mx_artifacts/v1/source.proto). In the other direction, the end of the stream shows
the target within moments that its source has ended.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from collections.abc import Sequence
from typing import Any

import grpc

from mx_artifacts.wire.gen.mx_artifacts.v1 import source_pb2 as pb

logger = logging.getLogger(__name__)

RENEWALS_PER_TTL = 3
"""Two renewals may be lost before a lease expires."""


class Session:
    """An Attach stream and the thread that renews its leases. Cancel and join it in the end."""

    def __init__(
        self, stub: Any, call_timeout_seconds: float, transports: Sequence[str] = ()
    ) -> None:
        """Open the stream on `stub` (a SourceServiceStub); `wait_attached` returns the result."""
        self.session_id = uuid.uuid4().hex
        self._stub = stub
        self._timeout_seconds = call_timeout_seconds
        self._answered = threading.Event()
        self._ended = threading.Event()
        self._closing = False
        self._error: grpc.RpcError | None = None
        self._attached = False
        self.was_silent = False
        """Whether it was given up because no answer came in time."""
        self.encodings: tuple[str, ...] = ()
        self.max_bytes_per_second = 0
        self.transport = ""
        """The one of `transports` that the source chose."""
        request = pb.AttachRequest(session_id=self.session_id, transports=transports)
        self._call: Any = stub.Attach(request)
        self._call.add_done_callback(lambda _call: self._ended.set())
        self._thread = threading.Thread(target=self._run, name="mx-session", daemon=True)
        self._thread.start()

    def wait_attached(self) -> grpc.RpcError | None:
        """Block until the source answered or the call's timeout passed.

        Returns:
            None when attached; else the error with which the stream ended.
        """
        if not self._answered.wait(self._timeout_seconds):
            self._call.cancel()
            self._answered.wait()
            self.was_silent = not self._attached
        return None if self._attached else self._error

    @property
    def lost(self) -> bool:
        """Whether the stream ended although this process did not close it."""
        return self._attached and self._ended.is_set() and not self._closing

    def cancel(self) -> None:
        """End the stream; the source frees what is still leased. Idempotent."""
        self._closing = True
        self._call.cancel()

    def join(self) -> None:
        """Wait for the thread, which a cancel lets go; a renewal under way may take its time."""
        self._thread.join()

    def _run(self) -> None:
        try:
            event = next(self._call)
            self.encodings = tuple(event.encodings)
            self.max_bytes_per_second = event.max_bytes_per_second
            self.transport = event.transport
            self._attached = True
            self._answered.set()
            self._renew(max(event.lease_ttl_seconds, 1) / RENEWALS_PER_TTL)
        except StopIteration:  # an orderly end without a word: not a source of ours
            self._error = grpc.RpcError("the stream ended at once")
        except grpc.RpcError as error:
            self._error = error
        finally:
            self._answered.set()

    def _renew(self, interval_seconds: float) -> None:
        request = pb.RenewLeasesRequest(session_id=self.session_id)
        while not self._ended.wait(interval_seconds):
            # A renewal that fails is not the end: the stream says when the source is gone.
            # ValueError: gRPC's word for a channel that was closed meanwhile.
            with contextlib.suppress(grpc.RpcError, ValueError):
                self._stub.RenewLeases(request, timeout=self._timeout_seconds)
