"""What is closed when this process ends, and what a child of fork leaves alone."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import threading
from collections.abc import Callable

import pytest

from mx_artifacts.runtime.process_end import HomeProcess, ProcessEnd


class Thing:
    def __init__(self, closed: list[Thing] | None = None, error: Exception | None = None) -> None:
        self.closed: list[Thing] = [] if closed is None else closed
        self._error = error

    def close(self) -> None:
        self.closed.append(self)
        if self._error is not None:
            raise self._error


class Process:
    """Holds what is called when this process ends, and in a child of fork."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at_end: list[Callable[[], None]] = []
        in_children: list[Callable[[], None]] = []
        monkeypatch.setattr(threading, "_register_atexit", self.at_end.append)
        monkeypatch.setattr(
            os, "register_at_fork", lambda after_in_child: in_children.append(after_in_child)
        )
        self.process_end = ProcessEnd()
        (self.fork,) = in_children

    def end(self) -> None:
        for function in self.at_end:
            function()


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    return Process(monkeypatch)


def test_everything_that_is_open_is_closed_at_the_end_and_nothing_else(process: Process) -> None:
    closed: list[Thing] = []
    things = [Thing(closed) for _ in range(3)]
    for thing in things:
        process.process_end.close_at_end(thing)
    process.process_end.forget(things[1])
    process.process_end.forget(things[1])
    assert closed == []
    process.end()
    assert set(closed) == {things[0], things[2]}
    assert len(closed) == 2


def test_the_end_is_registered_once_and_not_before_it_is_needed(process: Process) -> None:
    assert process.at_end == []
    things = [Thing(), Thing()]
    for thing in things:
        process.process_end.close_at_end(thing)
    assert len(process.at_end) == 1


def test_one_that_fails_to_close_keeps_no_other_open(
    process: Process, caplog: pytest.LogCaptureFixture
) -> None:
    closed: list[Thing] = []
    things = [Thing(closed, OSError("the disk is gone")), Thing(closed, OSError("so it is"))]
    for thing in things:
        process.process_end.close_at_end(thing)
    with caplog.at_level(logging.ERROR):
        process.end()
    assert set(closed) == set(things)
    assert "the disk is gone" in caplog.text


def test_an_object_registered_for_the_process_end_is_not_kept_alive(process: Process) -> None:
    closed: list[Thing] = []
    process.process_end.close_at_end(Thing(closed))
    gc.collect()
    process.end()
    assert closed == []


def test_a_child_of_fork_closes_nothing_of_its_parent_but_what_is_its_own(
    process: Process,
) -> None:
    inherited, own = Thing(), Thing()
    process.process_end.close_at_end(inherited)
    process.process_end._lock.acquire()  # as another thread of the parent may have
    process.fork()
    process.process_end.close_at_end(own)
    process.end()
    assert (inherited.closed, own.closed) == ([], [own])


def test_where_the_end_has_begun_nothing_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_function: object) -> None:
        raise RuntimeError("can't register atexit after shutdown")

    monkeypatch.setattr(threading, "_register_atexit", refuse)
    monkeypatch.setattr(os, "register_at_fork", lambda after_in_child: None)
    ProcessEnd().close_at_end(Thing())


def test_python_s_own_list_is_used_where_threading_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registered: list[object] = []
    monkeypatch.delattr(threading, "_register_atexit")
    monkeypatch.setattr(atexit, "register", registered.append)
    monkeypatch.setattr(os, "register_at_fork", lambda after_in_child: None)
    ProcessEnd().close_at_end(Thing())
    assert len(registered) == 1


def test_a_child_is_not_the_process_in_which_an_object_was_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = HomeProcess()
    assert home.is_this
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    assert not home.is_this
