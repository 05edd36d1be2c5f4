"""Work that a busy file system refuses for a moment."""

from __future__ import annotations

import errno

import pytest

from mx_artifacts.filesystem.busy import PASSING, retried
from mx_artifacts.runtime.clock import FakeClock


class Work:
    """Fails by these errors, one after the other, and then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.attempts = 0

    def __call__(self) -> str:
        self.attempts += 1
        if self._errors:
            raise self._errors.pop(0)
        return "done"


def busy(code: int = errno.EBUSY) -> OSError:
    return OSError(code, "in use")


def test_work_that_succeeds_is_done_once() -> None:
    clock, work = FakeClock(), Work()
    before = clock.monotonic()
    assert retried(work, clock) == "done"
    assert (work.attempts, clock.monotonic()) == (1, before)


@pytest.mark.parametrize("code", sorted(PASSING))
def test_a_failure_that_may_pass_is_waited_out(code: int) -> None:
    clock, work = FakeClock(0.0), Work(busy(code), busy(code))
    assert retried(work, clock) == "done"
    assert work.attempts == 3
    assert clock.monotonic() == pytest.approx(0.15)


def test_one_that_does_not_pass_is_raised_within_a_second() -> None:
    last = busy()
    clock, work = FakeClock(0.0), Work(*(busy() for _ in range(4)), last, busy())
    with pytest.raises(OSError, match="in use") as caught:
        retried(work, clock)
    assert caught.value is last
    assert work.attempts == 5
    assert clock.monotonic() == pytest.approx(0.75)


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "full"), FileNotFoundError("gone"), ValueError("wrong")]
)
def test_an_error_that_is_not_temporary_is_raised_at_once(error: Exception) -> None:
    clock, work = FakeClock(0.0), Work(busy(), error)
    with pytest.raises(type(error)) as caught:
        retried(work, clock)
    assert caught.value is error
    assert work.attempts == 2
