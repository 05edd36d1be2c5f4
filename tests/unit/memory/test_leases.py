"""The lease table: times by a fake clock, and every on_free exactly once."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from mx_artifacts.errors import (
    LeaseError,
    LeaseExpiredError,
    NoFreeSlotError,
    UnknownLeaseError,
)
from mx_artifacts.memory import leases
from mx_artifacts.memory.leases import REMEMBERED_EXPIRED_LEASES, LeaseTable
from mx_artifacts.runtime.clock import FakeClock

TTL_SECONDS = 30.0
GRACE_SECONDS = 60.0


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.table: LeaseTable[str] = LeaseTable(self.clock, TTL_SECONDS, GRACE_SECONDS)
        self.freed: Counter[str] = Counter()

    def grant(self, session_id: str, detail: str) -> str:
        return self.table.grant(session_id, detail, lambda: self.freed.update([detail])).lease_id


@pytest.fixture
def world() -> World:
    return World()


def test_release_frees_and_returns_the_lease(world: World) -> None:
    lease_id = world.grant("s", "chunk 1")
    lease = world.table.release(lease_id)
    assert (lease.lease_id, lease.detail) == (lease_id, "chunk 1")
    assert world.freed == {"chunk 1": 1}
    with pytest.raises(UnknownLeaseError):
        world.table.release(lease_id)
    assert world.freed == {"chunk 1": 1}


def test_one_holder_keeps_out_no_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "MAX_LEASES_OF_SESSION", 3)
    monkeypatch.setattr(leases, "MAX_PLAIN_LEASES", 2)
    held = {holder: [world.grant(holder, holder) for _ in range(2)] for holder in ("", "s")}
    with pytest.raises(NoFreeSlotError, match="2 leases"):
        world.grant("", "too many")
    world.grant("s", "s")
    with pytest.raises(NoFreeSlotError, match="3 leases"):
        world.grant("s", "too many")
    assert world.grant("another", "a")
    world.table.release(held["s"][0])
    assert world.grant("s", "again")
    world.clock.advance(TTL_SECONDS + GRACE_SECONDS)
    world.table.expire()
    assert world.table.count_plain() == 0
    assert world.grant("", "again")
    assert world.freed["too many"] == 0


def test_an_expired_lease_is_quarantined_for_the_grace_period(world: World) -> None:
    world.grant("", "a")
    world.clock.advance(TTL_SECONDS + GRACE_SECONDS - 1)
    assert world.table.expire() == 0
    assert not world.freed
    world.clock.advance(1)
    assert world.table.expire() == 1
    assert world.table.expire() == 0
    assert world.freed == {"a": 1}


def test_a_release_within_the_grace_period_is_in_time(world: World) -> None:
    lease_id = world.grant("", "a")
    world.clock.advance(TTL_SECONDS + 1)
    world.table.expire()
    assert world.table.release(lease_id).detail == "a"
    assert world.freed == {"a": 1}


def test_a_release_after_the_memory_was_freed_says_so(world: World) -> None:
    lease_id = world.grant("", "a")
    world.clock.advance(TTL_SECONDS + GRACE_SECONDS)
    world.table.expire()
    with pytest.raises(LeaseExpiredError, match=lease_id) as raised:
        world.table.release(lease_id)
    assert raised.value.retryable
    assert world.freed == {"a": 1}


def test_expired_leases_are_not_remembered_for_ever(world: World) -> None:
    first = world.grant("", "a")
    for _ in range(REMEMBERED_EXPIRED_LEASES):
        world.grant("", "b")
        world.clock.advance(0.001)
    world.clock.advance(TTL_SECONDS + GRACE_SECONDS)
    world.table.expire()
    with pytest.raises(UnknownLeaseError):
        world.table.release(first)


def test_renewing_a_session_renews_its_leases_only(world: World) -> None:
    world.grant("mine", "a")
    world.grant("mine", "b")
    world.grant("other", "c")
    world.clock.advance(TTL_SECONDS + GRACE_SECONDS - 1)  # expired, but not yet freed
    assert world.table.renew_session("mine") == 2
    world.clock.advance(TTL_SECONDS + GRACE_SECONDS - 1)
    assert world.table.expire() == 1
    assert world.freed == {"c": 1}
    assert world.table.renew_session("nobody") == 0


def test_freeing_a_session_is_immediate(world: World) -> None:
    world.grant("dead", "a")
    world.grant("dead", "b")
    world.grant("alive", "c")
    assert world.table.free_session("dead") == 2
    assert world.table.free_session("dead") == 0
    assert world.freed == {"a": 1, "b": 1}
    assert len(world.table) == 1


def test_plain_peers_are_no_session(world: World) -> None:
    world.grant("", "a")
    assert world.table.free_session("") == 0
    assert world.table.renew_session("") == 0
    assert len(world.table) == 1


def test_close_frees_all_and_refuses_new_leases(world: World) -> None:
    world.grant("", "a")
    world.grant("s", "b")
    world.table.close()
    world.table.close()
    assert world.freed == {"a": 1, "b": 1}
    with pytest.raises(LeaseError, match="stopping"):
        world.grant("s", "c")
    assert "c" not in world.freed


def test_one_on_free_that_raises_does_not_keep_the_others(world: World) -> None:
    def fail() -> None:
        raise RuntimeError("broken")

    world.grant("s", "a")
    world.table.grant("s", "bad", fail)
    world.grant("s", "b")
    with pytest.raises(RuntimeError, match="broken"):
        world.table.free_session("s")
    assert world.freed == {"a": 1, "b": 1}


class LeaseMachine(RuleBasedStateMachine):
    """Any order of calls: memory is freed once, and never while a reader may rely on it."""

    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.numbers = itertools.count()
        self.held: dict[str, tuple[str, str, float]] = {}  # detail: id, session, safe until
        self.gone: set[str] = set()

    def _safe_until(self) -> float:
        return self.world.clock.now() + TTL_SECONDS + GRACE_SECONDS

    @rule(target=leases, session=st.sampled_from(["", "s", "t"]))
    def grant(self, session: str) -> str:
        detail = str(next(self.numbers))
        lease_id = self.world.grant(session, detail)
        self.held[detail] = (lease_id, session, self._safe_until())
        return detail

    @rule(detail=leases)
    def release(self, detail: str) -> None:
        if detail in self.held:
            lease_id, _, _ = self.held.pop(detail)
            assert self.world.table.release(lease_id).detail == detail
            self.gone.add(detail)

    @rule(session=st.sampled_from(["", "s", "t"]))
    def renew(self, session: str) -> None:
        mine = [d for d, (_, s, _) in self.held.items() if s == session != ""]
        assert self.world.table.renew_session(session) == len(mine)
        for detail in mine:
            self.held[detail] = (*self.held[detail][:2], self._safe_until())

    @rule(session=st.sampled_from(["", "s", "t"]))
    def free(self, session: str) -> None:
        mine = [d for d, (_, s, _) in self.held.items() if s == session != ""]
        assert self.world.table.free_session(session) == len(mine)
        self._went(mine)

    @rule(seconds=st.sampled_from([1.0, 29.0, 30.0, 60.0, 90.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.clock.advance(seconds)

    @rule()
    def expire(self) -> None:
        over = [d for d, (_, _, until) in self.held.items() if until <= self.world.clock.now()]
        assert self.world.table.expire() == len(over)
        self._went(over)

    def _went(self, details: list[str]) -> None:
        for detail in details:
            del self.held[detail]
        self.gone.update(details)

    @invariant()
    def freed_exactly_what_went(self) -> None:
        assert self.world.freed == dict.fromkeys(self.gone, 1)
        assert len(self.world.table) == len(self.held)


LeaseMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
TestLeases = LeaseMachine.TestCase
