from __future__ import annotations

import logging
import threading

import pytest

from mx_artifacts.artifacts.source.heartbeat import Heartbeat
from mx_artifacts.core.sources import SourceStatus
from mx_artifacts.errors import BackendUnavailableError

INITIALIZING, READY, STALE = SourceStatus.INITIALIZING, SourceStatus.READY, SourceStatus.STALE


class FakeServer:
    """A central server that holds one record; `down` makes every call fail."""

    def __init__(self) -> None:
        self.record: SourceStatus | None = None
        self.seen: list[SourceStatus] = []
        self.down = False
        self.healthy = True
        self.called = threading.Semaphore(0)

    def status(self) -> SourceStatus:
        return READY if self.healthy else STALE

    def publish(self) -> None:
        self._check()
        self._set(INITIALIZING)

    def report(self, status: SourceStatus) -> bool:
        self.called.release()
        self._check()
        if self.record is None:
            return False
        self._set(status)
        return True

    def _set(self, status: SourceStatus) -> None:
        self.record = status
        self.seen.append(status)

    def _check(self) -> None:
        if self.down:
            raise BackendUnavailableError("down")


class Source:
    def __init__(self) -> None:
        self.server = FakeServer()
        self.interval_seconds = 3600.0

    def heartbeat(self) -> Heartbeat:
        return Heartbeat(self.server, self.interval_seconds)


@pytest.fixture
def source() -> Source:
    return Source()


def test_published_then_ready_at_once_and_stale_in_the_end(source: Source) -> None:
    heartbeat = source.heartbeat()
    heartbeat.start()
    assert source.server.seen == [INITIALIZING, READY]
    heartbeat.beat()
    heartbeat.stop()
    heartbeat.stop()
    assert source.server.seen == [INITIALIZING, READY, READY, STALE]


def test_the_thread_continues_to_send_heartbeats(source: Source) -> None:
    source.interval_seconds = 0.001
    heartbeat = source.heartbeat()
    heartbeat.start()
    for _ in range(4):
        assert source.server.called.acquire(timeout=30)
    heartbeat.stop()
    assert source.server.seen[:4] == [INITIALIZING, READY, READY, READY]
    assert source.server.seen[-1] is STALE


def test_an_unhealthy_source_is_stale_until_it_is_well(source: Source) -> None:
    heartbeat = source.heartbeat()
    heartbeat.start()
    for source.server.healthy in (False, False, True):
        heartbeat.beat()
    heartbeat.stop()
    assert source.server.seen == [INITIALIZING, READY, STALE, STALE, READY, STALE]


def test_a_lost_record_is_published_again(source: Source) -> None:
    heartbeat = source.heartbeat()
    heartbeat.start()
    source.server.record = None
    heartbeat.beat()
    assert source.server.seen == [INITIALIZING, READY, INITIALIZING, READY]
    heartbeat.stop()


def test_an_outage_is_survived_with_one_warning(
    source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    heartbeat = source.heartbeat()
    heartbeat.start()
    for _outage in range(2):
        caplog.clear()
        source.server.down = True
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                heartbeat.beat()
        assert len(caplog.records) == 1
        source.server.down = False
        heartbeat.beat()
    assert source.server.record is READY
    heartbeat.stop()


def test_start_without_a_server_raises_and_can_be_repeated(source: Source) -> None:
    source.server.down = True
    heartbeat = source.heartbeat()
    with pytest.raises(BackendUnavailableError):
        heartbeat.start()
    source.server.down = False
    heartbeat.start()
    assert source.server.record is READY
    heartbeat.stop()


def test_stop_without_a_server_or_a_start_is_no_error(
    source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    source.heartbeat().stop()
    heartbeat = source.heartbeat()
    heartbeat.start()
    source.server.down = True
    with caplog.at_level(logging.WARNING):
        heartbeat.stop()
    assert "STALE" in caplog.text


def test_stopping_many_heartbeats_does_not_wait_for_a_server_that_hangs(source: Source) -> None:
    heartbeat = source.heartbeat()
    heartbeat.start()
    source.server.down = True
    assert not heartbeat.stop()
    others = source.heartbeat()
    source.server.down = False
    others.start()
    assert others.stop(tell_server=False)
    assert source.server.record is READY


def test_a_beat_at_once_waits_for_no_server_that_hangs(source: Source) -> None:
    heartbeat = source.heartbeat()
    heartbeat.start()
    heartbeat.beat_now(30)
    assert source.server.seen == [INITIALIZING, READY, READY]
    asked, may_answer = threading.Event(), threading.Event()
    update = source.server.report

    def hang(status: SourceStatus) -> bool:
        asked.set()
        may_answer.wait(30)
        return update(status)

    source.server.report = hang  # type: ignore[method-assign]
    heartbeat.beat_now(0.05)
    assert asked.wait(30)
    assert source.server.seen == [INITIALIZING, READY, READY]  # not answered yet
    may_answer.set()
    heartbeat.stop()
    assert source.server.seen[-1] is STALE


def test_an_unexpected_error_does_not_end_it(
    source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    heartbeat = source.heartbeat()
    heartbeat.start()
    update = source.server.report

    def break_once(status: SourceStatus) -> bool:
        source.server.report = update  # type: ignore[method-assign]
        raise RuntimeError("unthought of")

    source.server.report = break_once  # type: ignore[method-assign]
    heartbeat.beat_now(30)
    heartbeat.beat_now(30)
    heartbeat.stop()
    assert "unthought of" in caplog.text
    assert source.server.seen == [INITIALIZING, READY, READY, STALE]
