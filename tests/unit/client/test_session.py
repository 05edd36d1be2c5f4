"""A target's stream at a source: attached, renewed, lost or cancelled. The source is made up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from mx_artifacts.client.session import RENEWALS_PER_TTL, Session
from mx_artifacts.wire.gen.mx_artifacts.v1 import source_pb2 as pb

WAIT_SECONDS = 30.0


class Stream:
    """An Attach call: gives one event, or an error, when the test lets it."""

    def __init__(self) -> None:
        self.event: pb.AttachEvent | None = None
        self.error: grpc.RpcError | None = None
        self.may_answer = threading.Event()
        self.cancels = 0
        self._done: list[Callable[[Stream], None]] = []

    def __next__(self) -> pb.AttachEvent:
        assert self.may_answer.wait(WAIT_SECONDS)
        if self.error is not None:
            self.end()
            raise self.error
        if self.event is None:
            self.end()
            raise StopIteration
        return self.event

    def add_done_callback(self, callback: Callable[[Stream], None]) -> None:
        self._done.append(callback)

    def end(self) -> None:
        for callback in self._done:
            callback(self)

    def cancel(self) -> None:
        self.cancels += 1
        if not self.may_answer.is_set():
            self.error = grpc.RpcError("cancelled")
            self.may_answer.set()
        self.end()


class Source:
    """The stub of a source's service; counts renewals, which fail by `errors` in turn."""

    def __init__(self) -> None:
        self.stream = Stream()
        self.request: Any = None
        self.renewals: list[str] = []
        self.errors: list[Exception] = []
        self.renewed = threading.Semaphore(0)

    def Attach(self, request: pb.AttachRequest) -> Stream:
        self.request = request
        return self.stream

    def RenewLeases(self, request: pb.RenewLeasesRequest, timeout: float) -> None:
        self.renewals.append(request.session_id)
        self.renewed.release()
        if self.errors:
            raise self.errors.pop(0)


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def new_session(source: Source) -> Iterator[Callable[..., Session]]:
    sessions: list[Session] = []

    def make(timeout_seconds: float = WAIT_SECONDS) -> Session:
        sessions.append(Session(source, timeout_seconds, ("stream", "nixl")))
        return sessions[-1]

    yield make
    for session in sessions:
        session.cancel()
        session.join()


def answer(source: Source, ttl_seconds: int = 3600) -> None:
    source.stream.event = pb.AttachEvent(
        lease_ttl_seconds=ttl_seconds,
        encodings=["zstd"],
        max_bytes_per_second=7,
        transport="nixl",
    )
    source.stream.may_answer.set()


def test_it_says_what_it_can_read_by_and_learns_what_it_is_given(
    source: Source, new_session: Callable[..., Session]
) -> None:
    session = new_session()
    answer(source)
    assert session.wait_attached() is None
    assert source.request.session_id == session.session_id
    assert list(source.request.transports) == ["stream", "nixl"]
    assert (session.encodings, session.max_bytes_per_second, session.transport) == (
        ("zstd",),
        7,
        "nixl",
    )
    assert not session.lost
    assert not session.was_silent


def test_each_session_has_an_id_of_its_own(new_session: Callable[..., Session]) -> None:
    ids = {new_session().session_id for _ in range(3)}
    assert len(ids) == 3
    assert all(len(each) == 32 for each in ids)


def test_a_refusal_is_told(source: Source, new_session: Callable[..., Session]) -> None:
    session = new_session()
    source.stream.error = error = grpc.RpcError("no room")
    source.stream.may_answer.set()
    assert session.wait_attached() is error
    assert not session.lost, "it never was attached"
    assert not session.was_silent


def test_a_stream_that_ends_without_a_word_is_no_source_of_ours(
    source: Source, new_session: Callable[..., Session]
) -> None:
    session = new_session()
    source.stream.may_answer.set()
    assert isinstance(session.wait_attached(), grpc.RpcError)


def test_one_that_does_not_answer_in_time_is_cancelled_and_told_so(
    source: Source, new_session: Callable[..., Session]
) -> None:
    session = new_session(timeout_seconds=0.0)
    assert session.wait_attached() is source.stream.error
    assert session.was_silent
    assert source.stream.cancels == 1


def test_an_answer_that_comes_while_it_is_given_up_counts(
    source: Source, new_session: Callable[..., Session]
) -> None:
    session = new_session(timeout_seconds=0.0)

    def late() -> None:
        answer(source)

    source.stream.cancel = late  # type: ignore[method-assign]
    assert session.wait_attached() is None
    assert not session.was_silent
    del source.stream.cancel


def test_it_is_lost_when_the_source_ends_it(
    source: Source, new_session: Callable[..., Session]
) -> None:
    session = new_session()
    answer(source)
    session.wait_attached()
    source.stream.end()
    assert session.lost


def test_it_is_not_lost_when_it_was_closed_here(
    source: Source, new_session: Callable[..., Session]
) -> None:
    session = new_session()
    answer(source)
    session.wait_attached()
    session.cancel()
    session.join()
    assert not session.lost


@pytest.mark.parametrize(("ttl_seconds", "told_seconds"), [(30, 30), (1, 1), (0, 1)])
def test_it_renews_some_times_within_the_life_of_a_lease(
    source: Source,
    new_session: Callable[..., Session],
    monkeypatch: pytest.MonkeyPatch,
    ttl_seconds: int,
    told_seconds: int,
) -> None:
    intervals: list[float] = []

    class Ended(threading.Event):
        """Passes the time at once; ends after three renewals."""

        def wait(self, timeout: float | None = None) -> bool:
            if timeout is not None and timeout < WAIT_SECONDS:
                intervals.append(timeout)
                return len(intervals) > 3
            return super().wait(timeout)

    monkeypatch.setattr(threading, "Event", Ended)
    session = new_session()
    # The refusal of a renewal, or a channel that was closed meanwhile, is not the end.
    source.errors = [grpc.RpcError("lost"), ValueError("Cannot invoke RPC on closed channel!")]
    answer(source, ttl_seconds)
    assert session.wait_attached() is None
    session.join()
    assert source.renewals == [session.session_id] * 3
    assert intervals == [told_seconds / RENEWALS_PER_TTL] * 4


def test_it_renews_no_more_once_it_has_ended(
    source: Source, new_session: Callable[..., Session]
) -> None:
    session = new_session()
    answer(source)
    session.wait_attached()
    source.stream.end()
    session.join()
    assert source.renewals == []
