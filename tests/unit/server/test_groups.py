"""Ballots that several servers write at once: nobody's report is lost, and none waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import NoReturn, cast

import grpc
import pytest

from mx_artifacts.core.groups import (
    FORGET_SECONDS,
    PRESENCE_SECONDS,
    MemberReport,
    Phase,
    Progress,
)
from mx_artifacts.metadata.memory_ballots import MemoryBallots
from mx_artifacts.runtime.clock import FakeClock
from mx_artifacts.server.groups import GroupService
from mx_artifacts.wire.gen.mx_artifacts.v1 import group_pb2 as pb
from mx_artifacts.wire.groups import GroupAnswer, answer_from_wire, report_to_wire

FIRST = MemberReport(group="job:triton", size=2, member_id="node-0", instance_id="a")
SECOND = replace(FIRST, member_id="node-1", instance_id="b")


class Refused(Exception):
    """What a call that is answered by a status raises here."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code


class Call:
    async def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        raise Refused(code, details)


class Ballots(MemoryBallots):
    """A test can act between what a server reads and what it writes."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.after_read: Callable[[], Awaitable[object]] | None = None
        self.ttls: list[float] = []

    async def get_ballots(self, group: str) -> bytes | None:
        read = await super().get_ballots(group)
        act, self.after_read = self.after_read, None
        if act is not None:
            await act()
        return read

    async def replace_ballots(
        self, group: str, expected: bytes | None, ballots: bytes, ttl_seconds: float
    ) -> bool:
        self.ttls.append(ttl_seconds)
        return await super().replace_ballots(group, expected, ballots, ttl_seconds)


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.ballots = Ballots(self.clock)
        self.servers = [GroupService(self.ballots, self.clock, PRESENCE_SECONDS) for _ in range(2)]

    async def report(self, report: MemberReport, server: int = 0) -> GroupAnswer:
        answer = await self.servers[server].Report(
            report_to_wire(report), cast(grpc.aio.ServicerContext, Call())
        )
        assert isinstance(answer, pb.GroupReportResponse)
        return answer_from_wire(answer, report.size, "here")


@pytest.fixture
def world() -> World:
    return World()


def test_members_of_two_servers_meet_in_one_round(world: World) -> None:
    async def run() -> None:
        first = await world.report(FIRST)
        second = await world.report(SECOND, server=1)
        assert first.round.round_id == second.round.round_id
        assert [member.member_id for member in second.round.members] == ["node-0", "node-1"]
        assert second.presence_seconds == PRESENCE_SECONDS
        assert set(world.ballots.ttls) == {FORGET_SECONDS}

    asyncio.run(run())


def test_a_report_that_comes_between_reading_and_writing_is_not_lost(world: World) -> None:
    async def run() -> None:
        world.ballots.after_read = lambda: world.report(SECOND, server=1)
        answer = await world.report(FIRST)
        assert {member.member_id for member in answer.round.members} == {"node-0", "node-1"}
        again = await world.report(replace(SECOND, round_id=answer.round.round_id))
        assert again.round.round_id == answer.round.round_id

    asyncio.run(run())


def test_the_last_two_of_a_phase_may_report_at_once(world: World) -> None:
    async def run() -> None:
        joined = await world.report(FIRST)
        await world.report(SECOND)
        staged = [
            replace(each, round_id=joined.round.round_id, progress=Progress.STAGED)
            for each in (FIRST, SECOND)
        ]
        world.ballots.after_read = lambda: world.report(staged[1], server=1)
        answer = await world.report(staged[0])
        assert answer.round.phase is Phase.COMMIT

    asyncio.run(run())


def test_nothing_is_written_where_a_report_changes_nothing(world: World) -> None:
    async def run() -> None:
        joined = await world.report(FIRST)
        writes = len(world.ballots.ttls)
        await world.report(replace(FIRST, round_id=joined.round.round_id))
        assert len(world.ballots.ttls) == writes

    asyncio.run(run())


def test_a_writer_gives_up_with_an_error_if_others_always_write_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_arguments: object) -> bool:
        return False

    monkeypatch.setattr(world.ballots, "replace_ballots", refuse)
    with pytest.raises(Refused, match="changed by too many members at once; try again") as caught:
        asyncio.run(world.report(FIRST))
    assert caught.value.code is grpc.StatusCode.UNAVAILABLE


def test_ballots_that_cannot_be_read_are_replaced_by_new_ones(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        await world.ballots.replace_ballots(FIRST.group, None, b"{damaged", 60.0)
        answer = await world.report(FIRST)
        assert [member.member_id for member in answer.round.members] == ["node-0"]

    asyncio.run(run())
    assert "starting new ones" in caplog.text


def test_groups_know_nothing_of_each_other(world: World) -> None:
    async def run() -> None:
        first = await world.report(FIRST)
        second = await world.report(replace(SECOND, group="other:triton"))
        assert first.round.round_id != second.round.round_id
        assert [member.member_id for member in second.round.members] == ["node-1"]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("report", "why"),
    [
        (replace(FIRST, group="not a name"), "group"),
        (replace(FIRST, size=0), "size"),
        (replace(FIRST, member_id=""), "member"),
    ],
)
def test_an_invalid_report_is_refused_and_nothing_is_written(
    world: World, report: MemberReport, why: str
) -> None:
    with pytest.raises(Refused, match=why) as caught:
        asyncio.run(world.report(report))
    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT
    assert world.ballots.ttls == []


def test_a_progress_of_another_release_is_refused(world: World) -> None:
    message = report_to_wire(FIRST)
    message.progress = 99  # type: ignore[assignment]
    call = cast(grpc.aio.ServicerContext, Call())
    with pytest.raises(Refused, match="progress 99"):
        asyncio.run(world.servers[0].Report(message, call))  # type: ignore[arg-type]
