"""When Python's cyclic garbage collector waits."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from mx_artifacts import collector


@pytest.fixture(autouse=True)
def _on_again() -> Iterator[None]:
    yield
    gc.enable()


def test_it_waits_for_the_last_of_those_who_want_it_to() -> None:
    first, second = collector.paused(), collector.paused()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_an_error_lets_it_go_on() -> None:
    with pytest.raises(ZeroDivisionError), collector.paused():
        _ = 1 // int(gc.isenabled())
    assert gc.isenabled()


def test_one_that_was_off_stays_off() -> None:
    gc.disable()
    with collector.paused():
        pass
    assert not gc.isenabled()
