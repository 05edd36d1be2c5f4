"""Ends of transfers, and how long nothing has happened."""

from __future__ import annotations

from mx_artifacts.runtime.clock import FakeClock
from mx_artifacts.runtime.deadline import Deadline, Standstill


def test_a_deadline_is_passed_from_its_end_on_and_never_negative() -> None:
    clock = FakeClock()
    deadline = Deadline(2.0, clock)
    assert (deadline.remaining(), deadline.passed) == (2.0, False)
    clock.advance(1.5)
    assert (deadline.remaining(), deadline.passed) == (0.5, False)
    clock.advance(0.5)
    assert (deadline.remaining(), deadline.passed) == (0.0, True)
    clock.advance(10)
    assert (deadline.remaining(), deadline.passed) == (0.0, True)
    assert deadline.budget_seconds == 2.0


def test_a_deadline_of_no_time_is_passed_at_once() -> None:
    assert Deadline(0.0, FakeClock()).passed
    assert Deadline(-1.0, FakeClock()).remaining() == 0.0


def test_a_standstill_lasts_until_the_marks_change() -> None:
    clock = FakeClock()
    still = Standstill(clock)
    assert still.seconds((0, 0)) == 0.0
    clock.advance(3)
    assert still.seconds((0, 0)) == 3.0
    clock.advance(1)
    assert still.seconds((0, 0)) == 4.0
    assert still.seconds((1, 0)) == 0.0
    clock.advance(2)
    assert still.seconds((1, 0)) == 2.0
    assert still.seconds((0, 0)) == 0.0, "back to marks of before is a change too"
