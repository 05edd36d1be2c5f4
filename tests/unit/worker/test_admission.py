"""How many prepares wait, how long, and how fast they are let by. No time passes here."""

from __future__ import annotations

from contextlib import ExitStack
from typing import cast

import grpc
import pytest

from mx_artifacts.errors import NoFreeSlotError
from mx_artifacts.runtime.clock import FakeClock
from mx_artifacts.runtime.rate_limit import RateLimit
from mx_artifacts.worker.admission import (
    MAX_PREPARES,
    PLAIN_SLOT_WAIT_SECONDS,
    SLOT_WAIT_SECONDS,
    AdmissionControl,
    slot_wait,
)

SESSION = "0" * 32


class Call:
    """A call whose caller waits for so long."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds

    def time_remaining(self) -> float | None:
        return self._seconds


def call(seconds: float | None) -> grpc.ServicerContext:
    return cast(grpc.ServicerContext, Call(seconds))


def control(bytes_per_second: float | None = None) -> tuple[AdmissionControl, FakeClock]:
    clock = FakeClock()
    return AdmissionControl(RateLimit(bytes_per_second, clock), clock), clock


@pytest.mark.parametrize(
    ("session_id", "limit_seconds"), [(SESSION, SLOT_WAIT_SECONDS), ("", PLAIN_SLOT_WAIT_SECONDS)]
)
def test_a_prepare_waits_within_half_of_its_caller_s_patience(
    session_id: str, limit_seconds: float
) -> None:
    assert slot_wait(session_id, call(None)) == limit_seconds
    assert slot_wait(session_id, call(1000.0)) == limit_seconds
    assert slot_wait(session_id, call(limit_seconds)) == limit_seconds / 2
    assert slot_wait(session_id, call(-1.0)) == 0.0


def test_a_turn_ends_with_its_patience() -> None:
    prepares, clock = control()
    with prepares.turn(5.0) as turn:
        assert turn.remaining() == 5.0
        clock.advance(4.0)
        assert turn.remaining() == 1.0
        clock.advance(4.0)
        assert turn.remaining() == 0.0


def test_without_a_rate_limit_bytes_go_by_at_once() -> None:
    prepares, clock = control()
    before = clock.monotonic()
    with prepares.turn(0.0) as turn:
        turn.admit(1 << 40)
    assert clock.monotonic() == before


def test_bytes_go_by_at_the_rate_of_all_together() -> None:
    prepares, clock = control(128.0)
    start = clock.monotonic()
    passed_at = []
    for _ in range(3):
        with prepares.turn(5.0) as turn:
            turn.admit(256)
            passed_at.append(clock.monotonic() - start)
    assert passed_at == [0.0, 2.0, 4.0]


def test_a_request_that_would_wait_too_long_for_the_rate_fails_and_reserves_nothing() -> None:
    prepares, clock = control(128.0)
    with prepares.turn(5.0) as turn:
        turn.admit(1280)
        with pytest.raises(NoFreeSlotError, match="--max-rate"):
            turn.admit(1)
    clock.advance(6.0)
    with prepares.turn(5.0) as turn:
        turn.admit(1)
        assert turn.remaining() == 1.0, "it waited for the ten seconds of the first, six are over"


def test_no_more_wait_than_may_and_each_that_ends_makes_room() -> None:
    prepares, _ = control()
    with ExitStack() as waiting:
        for _ in range(MAX_PREPARES - 1):
            waiting.enter_context(prepares.turn(1.0))
        with prepares.turn(1.0), pytest.raises(NoFreeSlotError, match=f"{MAX_PREPARES} targets"):
            waiting.enter_context(prepares.turn(1.0))
        with pytest.raises(ZeroDivisionError), prepares.turn(1.0):
            raise ZeroDivisionError
        waiting.enter_context(prepares.turn(1.0))
    with ExitStack() as again:
        for _ in range(MAX_PREPARES):
            again.enter_context(prepares.turn(1.0))
