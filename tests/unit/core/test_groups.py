"""The rules of groups: phases, rounds, duplicates, silence, restarts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mx_artifacts.core.groups import (
    FORGET_SECONDS,
    LINGER_SECONDS,
    MAX_ROUNDS,
    MemberReport,
    Phase,
    Progress,
    Round,
    Rounds,
    advance,
    check_report,
)
from mx_artifacts.errors import ConfigurationError, ConflictError, RecordNotFoundError
from mx_artifacts.metadata.ballots import rounds_from_json, rounds_to_json

PRESENCE_SECONDS = 10.0


class ReadScheduler:
    """A group's rounds as a server would keep them, on a clock that the test moves."""

    def __init__(self, size: int = 2) -> None:
        self.rounds: Rounds = ()
        self.now_ms = 1_700_000_000_000
        self._size = size
        self._made = 0

    def say(self, report: MemberReport) -> Round:
        self._made += 1
        self.rounds, round_ = advance(
            rounds_from_json(rounds_to_json(self.rounds)),
            report,
            now_ms=self.now_ms,
            presence_seconds=PRESENCE_SECONDS,
            new_round_id=f"r{self._made}",
        )
        return round_

    def join(self, member: str, instance: str = "", size: int = 0) -> MemberReport:
        report = MemberReport("g:triton", size or self._size, member, instance or f"{member}1")
        return replace(report, round_id=self.say(report).round_id)

    def pass_seconds(self, seconds: float) -> None:
        self.now_ms += int(seconds * 1000)


def staged(report: MemberReport) -> MemberReport:
    return replace(report, progress=Progress.STAGED, artifact_id="a1")


def moved(report: MemberReport, *roots: str) -> MemberReport:
    return replace(report, progress=Progress.MOVED, roots=roots or ("triton",))


def failed(report: MemberReport, reason: str = "no source") -> MemberReport:
    return replace(report, progress=Progress.FAILED, reason=reason)


def test_a_round_is_done_when_all_have_moved_and_not_before() -> None:
    board = ReadScheduler()
    a = board.join("a")
    assert board.say(staged(a)).phase is Phase.OPEN  # b has not come
    b = board.join("b")
    assert b.round_id == a.round_id
    assert board.say(staged(a)).phase is Phase.OPEN
    assert board.say(staged(b)).phase is Phase.COMMIT
    assert board.say(moved(a)).phase is Phase.COMMIT
    assert board.say(moved(b)).phase is Phase.DONE
    assert board.say(failed(a)).phase is Phase.DONE  # too late, and both learn the same
    assert board.say(moved(a)).describe() == "2 of 2 members came: a (moved), b (moved)"


@pytest.mark.parametrize("until", ["joined", "staged", "committed", "moved"])
def test_a_failure_at_any_point_aborts_for_all(until: str) -> None:
    board = ReadScheduler()
    a, b = board.join("a"), board.join("b")
    if until != "joined":
        board.say(staged(a))
    if until in ("committed", "moved"):
        assert board.say(staged(b)).phase is Phase.COMMIT
    if until == "moved":
        board.say(moved(a))
    assert board.say(failed(b)).phase is Phase.ABORTED
    told = board.say(moved(a) if until == "moved" else staged(a))
    assert (told.phase, told.reason) == (Phase.ABORTED, "member b failed: no source")


def test_a_late_report_takes_nothing_back() -> None:
    board = ReadScheduler()
    a, b = board.join("a"), board.join("b")
    board.say(staged(a))
    board.say(a)  # a sign of life that was under way
    assert board.say(staged(b)).phase is Phase.COMMIT


@pytest.mark.parametrize("progress", [Progress.FETCHING, Progress.STAGED, Progress.MOVED])
def test_a_silent_member_aborts_the_round(progress: Progress) -> None:
    board = ReadScheduler()
    a, b = board.join("a"), board.join("b")
    if progress is not Progress.FETCHING:
        board.say(staged(a))
        board.say(staged(b))
    if progress is Progress.MOVED:
        board.say(moved(b))
    for _ in range(4):
        board.pass_seconds(PRESENCE_SECONDS / 4)
        told = board.say(replace(a, progress=min(progress, Progress.STAGED)))
        assert told.phase is not Phase.ABORTED
    board.pass_seconds(PRESENCE_SECONDS / 4)
    told = board.say(a)
    assert told.phase is Phase.ABORTED
    assert "member b was silent for 12 s" in told.reason
    assert progress.name.lower() in told.reason
    assert board.say(moved(b)).phase is Phase.ABORTED  # it was only slow, and learns it


def test_a_member_that_gives_up_early_names_the_silent_member() -> None:
    board = ReadScheduler()
    a, b = board.join("a"), board.join("b")
    assert board.say(staged(a)).lacking(Progress.STAGED) == "b (fetching)"
    board.pass_seconds(PRESENCE_SECONDS * 0.8)
    told = board.say(failed(a, "waited 8 s for b (fetching)")).reason
    assert told.endswith("for b (fetching); member b was silent for 8 s")
    assert board.say(b).phase is Phase.ABORTED


def test_the_reason_says_that_a_silent_members_entries_stay_until_its_next_install() -> None:
    board = ReadScheduler()
    a, b = board.join("a"), board.join("b")
    for report in (staged(a), staged(b), moved(b)):
        board.say(report)
    board.pass_seconds(PRESENCE_SECONDS * 0.8)
    board.say(staged(a))
    board.pass_seconds(PRESENCE_SECONDS * 0.8)
    assert "had moved its part in when it fell silent, which its next" in board.say(a).reason


def test_votes_of_a_former_run_never_count() -> None:
    board = ReadScheduler()
    old_a, old_b = board.join("a"), board.join("b")
    board.say(staged(old_a))
    board.say(failed(old_b))
    a = board.join("a", "a2")
    assert a.round_id != old_a.round_id
    assert board.say(staged(old_a)).phase is Phase.ABORTED
    assert board.say(staged(a)).phase is Phase.OPEN
    b = board.join("b", "b2")
    assert board.say(staged(b)).phase is Phase.COMMIT
    for report in (a, b):
        board.say(moved(report))
    assert board.join("a", "a3").round_id not in (a.round_id, old_a.round_id)


def test_a_process_that_joins_twice_is_in_one_round() -> None:
    board = ReadScheduler()
    assert board.join("a") == board.join("a")  # the first answer was lost
    board.say(failed(board.join("b")))
    assert board.say(MemberReport("g:triton", 2, "a", "a1")).phase is Phase.ABORTED


def test_a_second_process_with_a_members_id_is_refused_while_the_first_lives() -> None:
    board = ReadScheduler()
    board.join("a")
    with pytest.raises(ConflictError, match="running member a"):
        board.join("a", "a2")
    board.pass_seconds(PRESENCE_SECONDS + 1)
    again = board.join("a", "a2")
    assert len(board.rounds) == 2
    assert board.rounds[0].phase is Phase.ABORTED
    assert board.say(again).members[0].instance_id == "a2"


def test_sizes_that_differ_and_members_too_many_are_refused() -> None:
    board = ReadScheduler()
    board.join("a")
    with pytest.raises(
        ConfigurationError, match="size 2 according to member a, but size 3 according to member b"
    ):
        board.join("b", size=3)
    board.join("b")
    with pytest.raises(ConfigurationError, match="has all of its 2 members: a, b"):
        board.join("c")


def test_a_member_that_joins_after_a_failure_gets_its_reason_once_and_then_a_new_round() -> None:
    board = ReadScheduler(size=3)
    board.say(failed(board.join("a")))
    b = board.join("b")
    assert board.say(b).reason == "member a failed: no source"
    assert board.join("b", "b2").round_id != b.round_id
    board.pass_seconds(PRESENCE_SECONDS + 1)
    assert board.join("c").round_id not in (b.round_id, "")
    late = ReadScheduler()
    old = late.join("a")
    late.say(failed(old))
    late.pass_seconds(LINGER_SECONDS + 1)
    assert late.join("b").round_id != old.round_id


def test_roots_that_differ_abort() -> None:
    board = ReadScheduler()
    a, b = board.join("a"), board.join("b")
    for report in (a, b):
        board.say(staged(report))
    board.say(moved(a, "autotune", "flashinfer"))
    told = board.say(moved(b, "flashinfer"))
    assert told.phase is Phase.ABORTED
    assert "a has autotune, flashinfer of artifact" in told.reason
    assert "b has flashinfer of" in told.reason


def test_reports_of_unknown_rounds_and_non_members_are_refused() -> None:
    board = ReadScheduler()
    a = board.join("a")
    for stranger in (replace(a, round_id="other"), replace(a, instance_id="a2")):
        with pytest.raises(RecordNotFoundError, match="no round") as caught:
            board.say(stranger)
        assert "restarted" in caught.value.hint()


def test_rounds_are_forgotten_in_the_end() -> None:
    board = ReadScheduler()
    for number in range(MAX_ROUNDS + 3):
        board.say(failed(board.join("a", f"a{number}")))
    assert len(board.rounds) == MAX_ROUNDS
    board.pass_seconds(FORGET_SECONDS + 1)
    board.join("b")
    assert len(board.rounds) == 1


def test_signs_of_life_are_not_written_each_time() -> None:
    board = ReadScheduler()
    a = board.join("a")
    before = board.rounds
    board.pass_seconds(PRESENCE_SECONDS / 10)
    board.say(a)
    assert board.rounds == before
    board.pass_seconds(PRESENCE_SECONDS / 10)
    board.say(a)
    assert board.rounds != before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"group": "g"}, "kind is ''"),
        ({"group": "g h:triton"}, "name is 'g h'"),
        ({"member_id": ""}, "member's id is ''"),
        ({"instance_id": "a\n"}, "instance's id"),
        ({"size": 1}, "size 1"),
        ({"size": 257}, "size 257"),
    ],
)
def test_reports_that_make_no_sense(changes: dict[str, object], message: str) -> None:
    good = MemberReport("g/run-1:triton", 2, "node-0.worker1", "1f")
    check_report(good)
    with pytest.raises(ConfigurationError, match=message):
        check_report(replace(good, **changes))  # type: ignore[arg-type]
