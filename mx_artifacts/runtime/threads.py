"""Runs the items of one piece of work in several threads until none is left."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from operator import length_hint
from typing import TypeVar

T = TypeVar("T")

MAX_THREADS = 8
"""File work is bound by the interpreter and the memory bus well before it has so many cores."""


class WorkStopped(Exception):
    """Ends the work of a thread because another one failed, or the caller gave up.

    It is not the cause, so the caller that joins the threads raises the cause instead.
    """


def thread_count() -> int:
    """Return how many threads file work is worth on this machine: the cores we may run on."""
    return max(1, min(MAX_THREADS, len(os.sched_getaffinity(0))))


def for_each(items: Iterable[T], work: Callable[[T], object], name: str) -> None:
    """Call `work` with each item, in several threads; raise the first error, once all ended.

    After an error no further item is begun. `items` is drawn from under a lock, in its order.
    """
    todo = iter(items)
    lock = threading.Lock()
    errors: list[BaseException] = []

    def next_items() -> Iterator[T]:
        while not errors:
            with lock:
                try:
                    item = next(todo)
                except StopIteration:
                    return
            yield item

    def run() -> None:
        try:
            for item in next_items():
                work(item)
        except BaseException as error:
            errors.append(error)

    helpers = [
        threading.Thread(target=run, name=f"{name}-{number}", daemon=True)
        for number in range(1, min(thread_count(), length_hint(items, MAX_THREADS)))
    ]
    for helper in helpers:
        helper.start()
    run()
    for helper in helpers:
        helper.join()
    if errors:
        raise errors[0]
