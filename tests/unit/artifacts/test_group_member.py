"""A member of a group: its waits, its failures, and what it says when it cannot know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mx_artifacts.artifacts.target.group_member import GroupMember, GroupWanted
from mx_artifacts.core.groups import MemberReport, Phase, Progress, Rounds, advance
from mx_artifacts.errors import (
    BackendUnavailableError,
    ConfigurationError,
    GroupFailedError,
    GroupInDoubtError,
    InstallError,
    NoSourceError,
    RecordNotFoundError,
    RollbackFailedError,
)
from mx_artifacts.install.base import RootReport
from mx_artifacts.observability.events import Event
from mx_artifacts.runtime.clock import FakeClock, unix_ms
from mx_artifacts.wire.groups import GroupAnswer

PRESENCE_SECONDS = 15.0
HERE = RootReport("triton", Path("/r"), ("k1",), (), {}, 1, 1)


class Server:
    """The rules over a clock; `script` runs before each answer, and may do what another does."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.rounds: Rounds = ()
        self.script: Callable[[MemberReport], None] = lambda report: None

    def report_to_group(self, report: MemberReport) -> GroupAnswer:
        self.script(report)
        return self.take_in(report)

    def take_in(self, report: MemberReport) -> GroupAnswer:
        self.rounds, round_ = advance(
            self.rounds,
            report,
            now_ms=unix_ms(self.clock),
            presence_seconds=PRESENCE_SECONDS,
            new_round_id=f"r{len(self.rounds)}",
        )
        return GroupAnswer(round_, PRESENCE_SECONDS)


class Other:
    """The other member, driven by the test."""

    def __init__(self, server: Server, member_id: str = "b") -> None:
        self._server = server
        self._report = MemberReport("g:triton", 2, member_id, f"{member_id}1")

    def say(self, progress: Progress, **changes: object) -> Phase:
        report = replace(self._report, progress=progress, **changes)  # type: ignore[arg-type]
        answer = self._server.take_in(report)
        self._report = replace(self._report, round_id=answer.round.round_id)
        return answer.round.phase

    def follow(self, report: MemberReport) -> None:
        """Be as far as the member that reports."""
        roots = ("triton",) if report.progress is Progress.MOVED else ()
        self.say(min(report.progress, Progress.MOVED), roots=roots)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def server(clock: FakeClock) -> Server:
    return Server(clock)


@pytest.fixture
def other(server: Server) -> Other:
    return Other(server)


def member_of(
    server: Server, *, join_seconds: float = 0, events: list[Event] | None = None
) -> GroupMember:
    return GroupMember(
        server,
        GroupWanted("g", 2, "a", timeout_seconds=20),
        kind_name="triton",
        join_seconds=join_seconds,
        clock=server.clock,
        events=([] if events is None else events).append,
    )


def install(member: GroupMember, report: RootReport = HERE) -> None:
    member.before_commit("artifact")
    member.before_receipt([report])


def test_all_go_on_when_the_other_does(server: Server, other: Other) -> None:
    events: list[Event] = []
    with member_of(server, events=events) as member:
        server.script = other.follow
        install(member)
    names = [event.name for event in events]
    assert names[0] == "group.joined"
    assert [name for name in names if name in ("group.commit", "group.done")] == [
        "group.commit",
        "group.done",
    ]
    assert server.rounds[-1].phase is Phase.DONE


def test_the_error_says_that_a_member_never_joined(server: Server, clock: FakeClock) -> None:
    started = clock.now()
    message = r"nothing: waited 20 s for 1 of 2 members, not come yet \(came: a\)$"
    with pytest.raises(GroupFailedError, match=message), member_of(server) as member:
        install(member)
    assert clock.now() - started == pytest.approx(20)
    assert server.rounds[-1].phase is Phase.ABORTED


def test_the_error_names_the_late_member_and_not_the_one_that_gave_up(
    server: Server, other: Other
) -> None:
    """It lives, so the server does not give it up; and what was moved in here is taken back."""

    def script(report: MemberReport) -> None:
        other.follow(replace(report, progress=min(report.progress, Progress.STAGED)))

    server.script = script
    message = r"nothing: waited 20 s for b \(staged\); this member takes back what it has moved$"
    with pytest.raises(GroupFailedError, match=message), member_of(server) as member:
        install(member)
    assert server.rounds[-1].reason == "member a failed: waited 20 s for b (staged)"


def run(member: GroupMember, afterwards: Callable[[], object]) -> None:
    with member:
        install(member)
        afterwards()


def fail(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("when", [Progress.STAGED, Progress.MOVED])
def test_a_failure_of_another_member_is_raised_with_its_cause(
    server: Server, other: Other, when: Progress
) -> None:
    def script(report: MemberReport) -> None:
        if report.progress is when:
            other.say(Progress.FAILED, reason="disk full")
        else:
            other.follow(report)

    server.script = script
    with (
        pytest.raises(GroupFailedError, match="member b failed: disk full") as caught,
        member_of(server) as member,
    ):
        install(member)
    assert (caught.value.exit_code, caught.value.retryable) == (17, True)


@pytest.mark.parametrize("retryable", [True, False])
def test_a_members_own_failure_is_reported_and_raised_as_that_of_the_group(
    server: Server, other: Other, retryable: bool
) -> None:
    cause = NoSourceError("nobody") if retryable else InstallError("never")
    with (
        pytest.raises(GroupFailedError, match="member a, on this node, failed") as caught,
        member_of(server),
    ):
        raise cause
    assert caught.value.retryable is retryable
    assert caught.value.hint() == cause.hint()
    assert other.say(Progress.FETCHING) is Phase.ABORTED
    assert server.rounds[-1].reason == f"member a failed: {cause}"


@pytest.mark.parametrize("lacking", ["dropped", "unusable"])
def test_an_artifact_that_is_not_whole_is_a_failure(
    server: Server, other: Other, lacking: str
) -> None:
    server.script = other.follow
    changes: dict[str, Any] = {lacking: {"k2": "no ninja"}}
    with (
        pytest.raises(GroupFailedError, match=r"k2 in /r cannot be used, .*no ninja") as caught,
        member_of(server) as member,
    ):
        install(member, replace(HERE, **changes))
    assert "--replace" in caught.value.hint()


def test_other_exceptions_are_raised_unchanged_and_reported(server: Server) -> None:
    for error in (KeyboardInterrupt(), RollbackFailedError("left behind")):
        with pytest.raises(type(error)), member_of(server):
            raise error
        assert server.rounds[-1].phase is Phase.ABORTED
    assert server.rounds[0].reason == "member a failed: interrupted"


def down(*when: Progress) -> Callable[[MemberReport], None]:
    def script(report: MemberReport) -> None:
        if report.progress in when:
            raise BackendUnavailableError("server is down")

    return script


def test_a_short_outage_is_waited_out(server: Server, other: Other, clock: FakeClock) -> None:
    with member_of(server) as member:
        started = clock.now()

        def script(report: MemberReport) -> None:
            if clock.now() - started < PRESENCE_SECONDS - 1:
                raise BackendUnavailableError("server is down")
            other.follow(report)

        server.script = script
        install(member)


def test_an_outage_before_the_move_is_a_failure(server: Server, other: Other) -> None:
    other.say(Progress.STAGED)
    server.script = down(Progress.STAGED)
    with (
        pytest.raises(
            GroupFailedError, match="this member cannot reach the central server: server is down"
        ),
        member_of(server) as member,
    ):
        install(member)


@pytest.mark.parametrize("lost", [False, True], ids=["down", "restarted and empty"])
def test_an_outage_after_the_move_is_doubt(server: Server, other: Other, lost: bool) -> None:
    def script(report: MemberReport) -> None:
        other.follow(report)
        if report.progress >= Progress.MOVED:
            raise RecordNotFoundError("no round") if lost else BackendUnavailableError("down")

    server.script = script
    with (
        pytest.raises(
            GroupInDoubtError, match="on other nodes, but the roots of this node"
        ) as caught,
        member_of(server) as member,
    ):
        install(member)
    assert caught.value.exit_code == 18
    assert "uninstall" in caught.value.hint()


def test_a_failure_after_all_have_moved_says_that_others_have_it(
    server: Server, other: Other
) -> None:
    server.script = other.follow
    member = member_of(server)
    with pytest.raises(
        GroupInDoubtError, match="was installed by the other members, but not by this one: disk"
    ):
        run(member, lambda: fail(OSError("disk failed")))


@pytest.mark.parametrize("all_moved", [False, True])
def test_an_interrupt_while_it_waits_for_the_others_to_move(
    server: Server, other: Other, all_moved: bool
) -> None:
    """It is an end like another before all have moved; after that the install is completed."""
    steps: list[str] = []

    def script(report: MemberReport) -> None:
        other.follow(replace(report, progress=min(report.progress, Progress.STAGED)))
        if report.progress is Progress.MOVED and not steps:
            steps.append("interrupted")
            if all_moved:
                server.take_in(report)
                other.say(Progress.MOVED, roots=("triton",))
            raise KeyboardInterrupt

    server.script = script
    with pytest.raises(KeyboardInterrupt):
        run(member_of(server), lambda: steps.append("kept"))
    assert ("kept" in steps) is all_moved
    assert server.rounds[-1].phase is (Phase.DONE if all_moved else Phase.ABORTED)


def test_joining_waits_for_a_server_as_long_as_for_a_source(
    server: Server, clock: FakeClock
) -> None:
    server.script = down(Progress.FETCHING)
    started = clock.now()
    with pytest.raises(BackendUnavailableError), member_of(server, join_seconds=7):
        pass
    assert clock.now() - started == pytest.approx(7, abs=1)


def test_a_killed_member_that_comes_again_joins_when_it_is_given_up(
    server: Server, clock: FakeClock
) -> None:
    Other(server, "a").say(Progress.STAGED)
    started = clock.now()
    with member_of(server):
        pass
    assert 0 < clock.now() - started < 2 * PRESENCE_SECONDS
    assert len(server.rounds) == 2


def test_a_second_living_member_of_that_name_is_refused(server: Server) -> None:
    twin = Other(server, "a")

    def answer_too(report: MemberReport) -> None:
        twin.say(Progress.FETCHING)

    server.script = answer_too
    with pytest.raises(ConfigurationError, match="already has a running member a") as caught:
        member_of(server).__enter__()
    assert "--group-member" in caught.value.hint()


def test_a_member_that_joins_a_failed_round_gets_its_reason_before_it_fetches(
    server: Server, other: Other
) -> None:
    other.say(Progress.FETCHING)
    other.say(Progress.FAILED, reason="no source")
    with pytest.raises(GroupFailedError, match="member b failed: no source"), member_of(server):
        pytest.fail("it went on")
