"""A rate limit: who waits how long, and what is never given away."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mx_artifacts.runtime.clock import FakeClock
from mx_artifacts.runtime.rate_limit import RateLimit

RATE = 128.0
"""Bytes a second: a power of two, so that times are exact."""
FOREVER = float("inf")


def limited() -> tuple[RateLimit, FakeClock]:
    clock = FakeClock(0.0)
    return RateLimit(RATE, clock), clock


def test_without_a_limit_there_is_no_wait() -> None:
    rate = RateLimit(None, FakeClock())
    assert not rate.is_set
    assert [rate.reserve(1 << 60, 0.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    rate.give_back(1 << 60)
    assert rate.reserve(1, 0.0) == 0.0


def test_each_waits_for_what_was_reserved_before_it() -> None:
    rate, clock = limited()
    assert rate.is_set
    assert [rate.reserve(64, FOREVER) for _ in range(3)] == [0.0, 0.5, 1.0]
    clock.advance(1.25)
    assert rate.reserve(64, FOREVER) == 0.25


def test_a_caller_that_would_wait_too_long_reserves_nothing() -> None:
    rate, _ = limited()
    assert rate.reserve(128, 0.0) == 0.0
    assert rate.reserve(1 << 40, 0.75) is None
    assert rate.reserve(128, 1.0) == 1.0, "as if nobody had asked in between"


def test_a_pause_allows_no_burst() -> None:
    rate, clock = limited()
    rate.reserve(128, FOREVER)
    clock.advance(1000)
    assert rate.reserve(128, FOREVER) == 0.0
    assert rate.reserve(128, FOREVER) == 1.0


def test_returned_bytes_are_available_to_the_next_caller() -> None:
    rate, _ = limited()
    rate.reserve(256, FOREVER)
    rate.give_back(128)
    assert rate.reserve(128, FOREVER) == 1.0


def test_more_given_back_than_is_reserved_allows_no_burst_either() -> None:
    rate, clock = limited()
    rate.reserve(128, FOREVER)
    clock.advance(10)
    rate.give_back(128)
    assert rate.reserve(128, FOREVER) == 0.0
    assert rate.reserve(128, FOREVER) == 1.0


asks = st.tuples(st.integers(min_value=1, max_value=1000), st.integers(min_value=0, max_value=64))


@given(st.lists(asks, max_size=30))
def test_no_more_bytes_pass_than_the_rate_and_the_last_request(
    asked: list[tuple[int, int]],
) -> None:
    """`asked` has, for each ask, its bytes and the pause [s/16] before it."""
    rate, clock = limited()
    passed_bytes = 0
    for length_bytes, pause in asked:
        clock.advance(pause / 16)
        wait_seconds = rate.reserve(length_bytes, FOREVER)
        assert wait_seconds is not None
        may_have_passed = RATE * (clock.monotonic() + wait_seconds)
        assert passed_bytes <= may_have_passed or passed_bytes == pytest.approx(may_have_passed)
        passed_bytes += length_bytes
