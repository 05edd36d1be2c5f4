"""How records age: what is marked, what is deleted, and what a heartbeat in between saves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest

from mx_artifacts.core.identity import SourceIdentity
from mx_artifacts.core.sources import PodIdentity, SourceQuery, SourceStatus, WorkerRecord
from mx_artifacts.errors import BackendUnavailableError
from mx_artifacts.metadata.memory import MemoryRecords
from mx_artifacts.metadata.summary import SummaryRow
from mx_artifacts.observability.catalogue import RecordsSwept
from mx_artifacts.observability.events import Event
from mx_artifacts.runtime.clock import FakeClock, unix_ms
from mx_artifacts.server.reaper import Reaper, ReaperTimes, SweepReport

TIMES = ReaperTimes(heartbeat_timeout_seconds=90, gc_timeout_seconds=3600, scan_interval_seconds=0)
SOURCE = "0" * 16
NOTHING = SweepReport(0, 0)


class Records(MemoryRecords):
    """Records in memory; a test can act between what the reaper reads and what it changes."""

    def __init__(self) -> None:
        super().__init__()
        self.before_change: Callable[[], Awaitable[object]] | None = None
        self.outages = 0

    async def scan(self) -> AsyncIterator[SummaryRow]:
        if self.outages:
            self.outages -= 1
            raise BackendUnavailableError("the database is gone")
        async for row in super().scan():
            if self.before_change is not None:
                await self.before_change()
            yield row


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.records = Records()
        self.events: list[Event] = []
        self.reaper = Reaper(self.records, self.clock, TIMES, self.events.append)

    async def publish(self, worker_id: str, status: SourceStatus = SourceStatus.READY) -> None:
        record = WorkerRecord(status=status, updated_at_ms=unix_ms(self.clock))
        identity = SourceIdentity(model_name="model")
        await self.records.put(SOURCE, worker_id, identity, record, PodIdentity())

    async def beat(self, worker_id: str) -> None:
        await self.records.update_status(
            SOURCE, worker_id, 0, SourceStatus.READY, unix_ms(self.clock), None
        )

    async def statuses(self) -> dict[str, SourceStatus]:
        return {row.worker_id: row.status for row in await self.records.list(SourceQuery())}


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("status", [SourceStatus.READY, SourceStatus.INITIALIZING])
def test_a_silent_record_is_marked_after_its_timeout_and_deleted_after_the_longer_one(
    world: World, status: SourceStatus
) -> None:
    async def run() -> None:
        await world.publish("w", status)
        world.clock.advance(90)
        assert await world.reaper.sweep() == NOTHING, "it is silent for 90 s, not for longer"
        assert await world.statuses() == {"w": status}
        world.clock.advance(1)
        assert await world.reaper.sweep() == SweepReport(marked_stale=1, deleted=0)
        assert await world.statuses() == {"w": SourceStatus.STALE}
        world.clock.advance(3600 - 91)
        assert await world.reaper.sweep() == NOTHING, "its age counts from its last heartbeat"
        world.clock.advance(1)
        assert await world.reaper.sweep() == SweepReport(marked_stale=0, deleted=1)
        assert await world.statuses() == {}
        assert await world.reaper.sweep() == NOTHING

    asyncio.run(run())


def test_a_record_that_is_very_old_is_marked_before_it_is_deleted(world: World) -> None:
    """A server that was down for a day may have heartbeats on their way."""

    async def run() -> None:
        await world.publish("w")
        world.clock.advance(86_400)
        assert await world.reaper.sweep() == SweepReport(1, 0)
        assert await world.reaper.sweep() == SweepReport(0, 1)

    asyncio.run(run())


def test_records_are_judged_each_for_itself(world: World) -> None:
    async def run() -> None:
        await world.publish("old", SourceStatus.STALE)
        world.clock.advance(3600)
        await world.publish("silent")
        world.clock.advance(91)
        await world.publish("live")
        await world.publish("ended", SourceStatus.STALE)
        assert await world.reaper.sweep() == SweepReport(1, 1)
        assert await world.statuses() == {
            "silent": SourceStatus.STALE,
            "live": SourceStatus.READY,
            "ended": SourceStatus.STALE,
        }

    asyncio.run(run())


def test_a_heartbeat_between_reading_and_marking_wins(world: World) -> None:
    async def run() -> None:
        await world.publish("w")
        world.clock.advance(1000)
        world.records.before_change = lambda: world.beat("w")
        assert await world.reaper.sweep() == NOTHING
        assert await world.statuses() == {"w": SourceStatus.READY}

    asyncio.run(run())


def test_a_worker_that_comes_back_before_it_is_deleted_wins(world: World) -> None:
    async def run() -> None:
        await world.publish("w", SourceStatus.STALE)
        world.clock.advance(5000)
        world.records.before_change = lambda: world.publish("w")
        assert await world.reaper.sweep() == NOTHING
        assert await world.statuses() == {"w": SourceStatus.READY}

    asyncio.run(run())


def test_two_reapers_count_a_change_once(world: World) -> None:
    async def run() -> None:
        await world.publish("w")
        world.clock.advance(1000)
        other = Reaper(world.records, world.clock, TIMES)
        rows = [row async for row in MemoryRecords.scan(world.records)]
        assert await other.sweep() == SweepReport(1, 0)

        async def read_before() -> AsyncIterator[SummaryRow]:
            for row in rows:
                yield row

        world.records.scan = read_before  # type: ignore[method-assign]
        assert await world.reaper.sweep() == NOTHING

    asyncio.run(run())


def test_a_record_whose_time_is_ahead_is_young(world: World) -> None:
    async def run() -> None:
        world.clock.advance(10_000)
        await world.publish("w")
        world.clock.advance(-10_000)  # another server's clock, say
        assert await world.reaper.sweep() == NOTHING

    asyncio.run(run())


def test_a_scan_that_changed_something_is_reported(world: World) -> None:
    async def run() -> None:
        await world.reaper.sweep()
        assert world.events == []
        await world.publish("w")
        world.clock.advance(91)
        await world.reaper.sweep()
        await world.reaper.sweep()
        assert world.events == [RecordsSwept(marked_stale=1, deleted=0)]

    asyncio.run(run())


def test_it_sweeps_again_and_again_until_it_is_stopped_and_through_an_outage(
    world: World,
) -> None:
    async def run() -> None:
        stop = asyncio.Event()
        await world.publish("w")
        world.clock.advance(91)
        world.records.outages = 2
        sweeps = iter(range(3))

        async def after_two() -> None:
            if next(sweeps) == 2:
                stop.set()

        world.records.before_change = after_two
        await world.reaper.run(stop)
        assert next(sweeps, None) is None
        assert world.records.outages == 0
        assert await world.statuses() == {"w": SourceStatus.STALE}
        assert world.events == [RecordsSwept(1, 0)]

    asyncio.run(run())


def test_one_that_is_stopped_before_it_begins_does_not_sweep(world: World) -> None:
    async def run() -> None:
        stop = asyncio.Event()
        stop.set()
        await world.publish("w")
        world.clock.advance(1000)
        await world.reaper.run(stop)
        assert await world.statuses() == {"w": SourceStatus.READY}

    asyncio.run(run())


def test_it_ends_at_once_when_it_is_stopped_while_it_waits(world: World) -> None:
    async def run() -> None:
        stop = asyncio.Event()
        slow = Reaper(world.records, world.clock, replace(TIMES, scan_interval_seconds=10**6))
        running = asyncio.create_task(slow.run(stop))
        await asyncio.sleep(0)
        stop.set()
        await running

    asyncio.run(run())


def test_a_bug_is_not_taken_for_an_outage(world: World) -> None:
    async def run() -> None:
        async def broken() -> None:
            raise ZeroDivisionError

        await world.publish("w")
        world.records.before_change = broken
        with pytest.raises(ZeroDivisionError):
            await world.reaper.run(asyncio.Event())

    asyncio.run(run())
