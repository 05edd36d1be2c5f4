"""Bounds the calls that a worker serves at once: of one peer, in all, and each one's time.

gRPC gives a thread to each call as soon as its headers have arrived. A peer that never sends the
request, or never reads the answer, would keep that thread for good, and a few hundred such calls
would silence a source that stays READY (docs/adr/0030).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import grpc

from mx_artifacts.core.foreign_text import shown
from mx_artifacts.runtime.clock import SYSTEM_CLOCK, Clock

MAX_SHARE = 0.5
"""The part of all calls that one peer address may have. This machine's own may have all."""
REQUEST_SECONDS = 10.0
"""Maximum time for a request to arrive, once its call has begun."""
CALL_SECONDS = 300.0
"""Maximum time of a call, its answer's way to the peer included. The longest honest ones are member
indexes of tens of megabytes on slow links."""

_SESSIONS = "/Attach"
"""Of calls by this name a peer has one for as long as it is attached; sessions are counted."""

Handler = Callable[[Any, grpc.ServicerContext], Any]


@dataclass(eq=False)
class _Call:
    context: grpc.ServicerContext
    ends_at: float


class CallLimits(grpc.ServerInterceptor):  # type: ignore[misc]
    """Takes each call when it begins, waits for its request, and ends it when it takes too long.

    Unary requests are taken as streams of one message, which are the same on the wire, so that the
    wait for the request happens here. Any thread; the owner calls `expire` every second.
    """

    def __init__(
        self,
        max_calls: int,
        is_own_address: Callable[[str], bool],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`is_own_address` says of an IP address whether it is this machine's."""
        self._max_of_peer = max(1, int(max_calls * MAX_SHARE))
        self._is_own_address = is_own_address
        self._clock = clock
        self._lock = threading.Lock()
        self._of_peer: Counter[str] = Counter()
        self._calls: set[_Call] = set()

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler | None:
        handler: Any = continuation(handler_call_details)
        if handler is None or handler.request_streaming:
            return handler  # reflection and health, which are not served here, would stream
        codecs = (handler.request_deserializer, handler.response_serializer)
        if not handler.response_streaming:
            return grpc.stream_unary_rpc_method_handler(self._unary(handler.unary_unary), *codecs)
        is_session = handler_call_details.method.endswith(_SESSIONS)
        streaming = self._streaming(handler.unary_stream, is_endless=is_session)
        return grpc.stream_stream_rpc_method_handler(streaming, *codecs)

    def _unary(self, serve: Handler) -> Handler:
        def limited(requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
            with self._counted(context) as call:
                return serve(self._request(requests, call), context)

        return limited

    def _streaming(self, serve: Handler, *, is_endless: bool) -> Handler:
        def limited(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
            with self._counted(context) as call:
                request = self._request(requests, call)
                if is_endless:
                    self._forget(call)
                yield from serve(request, context)

        return limited

    @contextmanager
    def _counted(self, context: grpc.ServicerContext) -> Iterator[_Call]:
        peer = address_of_peer(context.peer())
        if self._of_peer[peer] >= self._max_of_peer and not self._is_own_address(peer):
            context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{shown(peer)} has {self._max_of_peer} calls under way already",
            )
        call = _Call(context, self._clock.monotonic() + REQUEST_SECONDS)
        with self._lock:
            self._of_peer[peer] += 1
            self._calls.add(call)
        try:
            yield call
        finally:
            with self._lock:
                self._of_peer -= Counter([peer])
                self._calls.discard(call)

    def _request(self, requests: Iterator[Any], call: _Call) -> Any:
        for request in requests:
            with self._lock:
                call.ends_at = self._clock.monotonic() + CALL_SECONDS
            return request
        call.context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call has no request")
        raise AssertionError("abort raises")

    def _forget(self, call: _Call) -> None:
        with self._lock:
            self._calls.discard(call)

    def expire(self) -> int:
        """End the calls that took too long; return how many they were."""
        now = self._clock.monotonic()
        with self._lock:
            late = [call for call in self._calls if call.ends_at <= now]
            self._calls.difference_update(late)
        for call in late:
            call.context.cancel()
        return len(late)


def address_of_peer(peer: str) -> str:
    """Return the IP address in what gRPC calls a peer: "ipv4:10.0.0.1:80", "ipv6:%5B::1%5D:80"."""
    scheme, _, rest = unquote(peer).partition(":")
    if scheme not in ("ipv4", "ipv6"):
        return peer
    return rest.rpartition(":")[0].strip("[]")
