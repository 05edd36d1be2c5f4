"""When Python's cyclic garbage collector waits."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from mx_artifacts.runtime import process
from mx_artifacts.runtime.gc_pause import gc_paused


@pytest.fixture(autouse=True)
def claimed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run each test as in a program of ours, and leave the collector enabled."""
    monkeypatch.setattr(process, "_claimed", True)
    yield
    gc.enable()


def test_in_a_process_that_is_not_ours_the_collector_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "_claimed", False)
    made: list[list[int]] = []
    with gc_paused():
        assert gc.isenabled()
        made.append([])
    assert not any(each is made[0] for each in gc.get_objects(generation=2))


def test_collection_resumes_after_the_last_pause_ends() -> None:
    first, second = gc_paused(), gc_paused()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_an_error_lets_it_go_on() -> None:
    with pytest.raises(ZeroDivisionError), gc_paused():
        _ = 1 // int(gc.isenabled())
    assert gc.isenabled()


def test_one_that_was_off_stays_off() -> None:
    gc.disable()
    with gc_paused():
        pass
    assert not gc.isenabled()


def test_objects_created_during_a_pause_are_in_the_oldest_generation() -> None:
    with gc_paused():
        made: list[list[int]] = [[]]
    assert any(each is made for each in gc.get_objects(generation=2))
    gc.collect(1)
    cycle: list[object] = []
    cycle.append(cycle)
    assert any(each is cycle for each in gc.get_objects(generation=0))


def test_objects_that_the_program_froze_stay_frozen() -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with gc_paused():
            pass
        assert gc.get_freeze_count() == frozen > 0
    finally:
        gc.unfreeze()
