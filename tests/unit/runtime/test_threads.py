"""Work of several threads: every item once, the first error, and nothing after it."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from mx_artifacts.runtime import threads
from mx_artifacts.runtime.threads import MAX_THREADS, for_each, thread_count

TIMEOUT_SECONDS = 30.0


@pytest.fixture
def four_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "thread_count", lambda: 4)


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "thread_count", lambda: 1)


@pytest.mark.usefixtures("four_threads")
def test_each_item_is_worked_on_once_in_several_threads() -> None:
    together = threading.Barrier(4, timeout=TIMEOUT_SECONDS)
    seen: Counter[int] = Counter()
    names: set[str] = set()

    def work(item: int) -> None:
        if item < 4:
            together.wait()  # breaks, and so fails, unless four threads meet here
        seen[item] += 1
        names.add(threading.current_thread().name)

    for_each(range(100), work, "mx-test")
    assert seen == dict.fromkeys(range(100), 1)
    assert {"mx-test-1", "mx-test-2", "mx-test-3"} <= names


@pytest.mark.usefixtures("one_thread")
def test_no_item_is_begun_after_an_error() -> None:
    begun: list[int] = []

    def work(item: int) -> None:
        begun.append(item)
        if item == 2:
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        for_each(range(5), work, "mx-test")
    assert begun == [0, 1, 2]


@pytest.mark.usefixtures("four_threads")
def test_the_first_error_is_raised_when_all_threads_have_ended() -> None:
    together = threading.Barrier(4, timeout=TIMEOUT_SECONDS)
    helpers: dict[str, threading.Thread] = {}
    begun: list[int] = []
    ended: list[int] = []

    def work(item: int) -> None:
        begun.append(item)
        assert len(begun) <= 4, "another item is begun after the error"
        helpers[threading.current_thread().name] = threading.current_thread()
        together.wait()
        if threading.current_thread().name == "mx-test-1":
            raise ValueError("the first")
        helpers["mx-test-1"].join(TIMEOUT_SECONDS)  # so its error is known from here on
        ended.append(item)
        if threading.current_thread().name == "mx-test-2":
            raise ValueError("the second")

    with pytest.raises(ValueError, match="the first"):
        for_each(iter(range(1000)), work, "mx-test")
    assert len(begun) == 4
    assert len(ended) == 3, "those under way end"


@pytest.mark.usefixtures("four_threads")
def test_an_error_of_the_items_themselves_is_raised_too() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise LookupError("no more to be had")

    seen: list[int] = []
    with pytest.raises(LookupError, match="no more"):
        for_each(items(), seen.append, "mx-test")
    assert seen == [1]


def test_nothing_to_do_starts_nothing() -> None:
    for_each([], pytest.fail, "mx-test")


@pytest.mark.parametrize(("cores", "count"), [(1, 1), (3, 3), (96, MAX_THREADS)])
def test_threads_are_as_many_as_the_cores_that_may_be_used_within_bounds(
    monkeypatch: pytest.MonkeyPatch, cores: int, count: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(cores)))
    assert thread_count() == count
