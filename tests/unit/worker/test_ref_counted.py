"""Something that ends when it was closed and its last user has left: once, whatever comes first."""

from __future__ import annotations

import pytest

from mx_artifacts.errors import LeaseError
from mx_artifacts.worker.ref_counted import RefCounted


class World:
    def __init__(self) -> None:
        self.ended = 0
        self.lifetime = RefCounted(self._end)

    def _end(self) -> None:
        self.ended += 1


@pytest.fixture
def world() -> World:
    return World()


def test_it_ends_at_once_if_it_is_not_used(world: World) -> None:
    world.lifetime.close()
    assert world.ended == 1


def test_it_does_not_end_while_it_is_not_closed(world: World) -> None:
    for _ in range(2):
        world.lifetime.enter()
        world.lifetime.leave()
    assert world.ended == 0


def test_it_ends_with_its_last_user(world: World) -> None:
    world.lifetime.enter()
    world.lifetime.enter()
    world.lifetime.close()
    world.lifetime.leave()
    assert world.ended == 0
    world.lifetime.leave()
    assert world.ended == 1


def test_no_session_is_admitted_after_close(world: World) -> None:
    world.lifetime.enter()
    world.lifetime.close()
    with pytest.raises(LeaseError, match="no longer served"):
        world.lifetime.enter()
    world.lifetime.leave()
    assert world.ended == 1, "who was refused does not count"


def test_closed_twice_it_ends_once(world: World) -> None:
    world.lifetime.enter()
    for _ in range(2):
        world.lifetime.close()
    world.lifetime.leave()
    for _ in range(2):
        world.lifetime.close()
    assert world.ended == 1


def test_the_end_may_look_at_what_ends() -> None:
    """`on_end` is called without the lock, so that it may close what in turn asks for it."""
    asked: list[LeaseError] = []

    def end() -> None:
        with pytest.raises(LeaseError) as caught:
            lifetime.enter()
        asked.append(caught.value)

    lifetime = RefCounted(end)
    lifetime.close()
    assert len(asked) == 1
