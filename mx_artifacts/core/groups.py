"""Groups: members on several nodes that install an artifact on all or on none (docs/groups.md).

Members meet in a round. It is OPEN until as many members as the group's size have staged. Then it
is COMMIT (each moves its entries in) until all have moved. Then it is DONE (each keeps them). If a
member fails or becomes silent before that, the round is ABORTED (each takes back what it has). DONE
and ABORTED are final, so every member that asks gets the same answer. These are pure rules; the
caller provides time and storage.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import IntEnum

from mx_artifacts.errors import ConfigurationError, ConflictError, RecordNotFoundError

MAX_SIZE = 256
"""Members; each writes all ballots of its group every few seconds."""
PRESENCE_SECONDS = 15.0
"""A member that is silent for this long is given up. Above a restart of the backend."""
LINGER_SECONDS = 60.0
"""Time after a failed round in which members that join late get its reason [s]."""
FORGET_SECONDS = 600.0
"""A decided round is kept for this long, for members that have not asked since."""
MAX_ROUNDS = 8
"""Of one group, with their members; the oldest decided ones go first."""
MAX_REASON_LENGTH = 500

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,254}")
"""Of a group, a member; a slash may separate a group's name from that of a run."""
NAME_EXPECTED = "up to 255 letters, digits and . _ - /, the first a letter or digit"
_REFRESHES = 5
"""How often a member's time is written anew within the presence time."""
_QUIET_SHARE = 0.5
"""Part of the presence time: a living member's last sign of life is stored twice within it."""


class Progress(IntEnum):
    """How far a member is; it only grows. Numbers are the wire's."""

    FETCHING = 1
    STAGED = 2
    MOVED = 3
    FAILED = 4


class Phase(IntEnum):
    """What a round's members are to do; it only grows. Numbers are the wire's."""

    OPEN = 1
    COMMIT = 2
    DONE = 3
    ABORTED = 4


@dataclass(frozen=True)
class MemberReport:
    """The report of a member about itself.

    Attributes:
        group: name:kind, since members agree on each kind alone.
        instance_id: distinguishes two processes with the same member id.
        round_id: as the first answer gave it; "" to join.
        artifact_id: what it installs, for messages; members may install different ones.
        roots: once moved: names of the artifact's roots that hold something here.
        reason: why it failed.
    """

    group: str
    size: int
    member_id: str
    instance_id: str
    round_id: str = ""
    progress: Progress = Progress.FETCHING
    artifact_id: str = ""
    roots: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Member:
    """A member of a round, as it last reported; `seen_ms` is Unix time by the server's clock."""

    member_id: str
    instance_id: str
    progress: Progress
    seen_ms: int
    artifact_id: str = ""
    roots: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Round:
    """One attempt of a group. `reason` says why it is ABORTED; `changed_ms`: when its phase did."""

    round_id: str
    size: int
    changed_ms: int
    phase: Phase = Phase.OPEN
    members: tuple[Member, ...] = ()
    reason: str = ""

    @property
    def decided(self) -> bool:
        return self.phase in (Phase.DONE, Phase.ABORTED)

    def find(self, member_id: str) -> Member | None:
        """Return the member of that id."""
        return next((each for each in self.members if each.member_id == member_id), None)

    def holds(self, report: MemberReport) -> bool:
        """Return whether the process that reports is a member."""
        member = self.find(report.member_id)
        return member is not None and member.instance_id == report.instance_id

    def describe(self) -> str:
        """Return who joined, and how far each member is: "1 of 2 members came: node-0 (staged)"."""
        came = ", ".join(f"{m.member_id} ({m.progress.name.lower()})" for m in self.members)
        return f"{len(self.members)} of {self.size} members came: {came}"

    def lacking(self, progress: Progress) -> str:
        """Return who has not reached `progress`, or never joined: "node-1 (fetching)"."""
        behind = [
            f"{m.member_id} ({m.progress.name.lower()})"
            for m in self.members
            if m.progress < progress
        ]
        missing = self.size - len(self.members)
        if missing:
            came = ", ".join(member.member_id for member in self.members)
            behind.append(f"{missing} of {self.size} members, not come yet (came: {came})")
        return " and ".join(behind)


Rounds = tuple[Round, ...]
"""A group's rounds, the newest last."""


def check_report(report: MemberReport) -> None:
    """Refuse names and sizes that make no sense.

    Raises:
        ConfigurationError: says what is wrong.
    """
    name, _, kind = report.group.partition(":")
    for what, text in (
        ("group's name", name),
        ("group's kind", kind),
        ("member's id", report.member_id),
        ("instance's id", report.instance_id),
    ):
        if not NAME.fullmatch(text):
            raise ConfigurationError(f"the {what} is {text!r}, but should be {NAME_EXPECTED}")
    if not 2 <= report.size <= MAX_SIZE:
        raise ConfigurationError(
            f"group {report.group} has size {report.size}, but should have 2 to {MAX_SIZE}"
        )


def advance(
    rounds: Rounds,
    report: MemberReport,
    *,
    now_ms: int,
    presence_seconds: float,
    new_round_id: str,
) -> tuple[Rounds, Round]:
    """Apply a report; return the new rounds of the group, and the round of the reporter.

    The same report again changes only times. A process that joins (no `round_id`) gets the newest
    round that is not decided. If that round failed before this member joined, the member gets this
    round and its reason. Otherwise a new round begins.

    Raises:
        ConfigurationError: the round has another size, or already has all its members.
        ConflictError: another living process has this member id.
        RecordNotFoundError: the round is not known, or the reporter is not in it.
    """
    presence_ms = int(presence_seconds * 1000)
    rounds = tuple(_judge(each, now_ms, presence_ms) for each in rounds)
    if report.round_id:
        mine = next((each for each in rounds if each.round_id == report.round_id), None)
    else:
        mine = next((each for each in rounds if each.holds(report)), None)
        mine = mine or _joined(rounds, report, now_ms, new_round_id)
    if mine is None or not mine.holds(report):
        raise RecordNotFoundError(
            f"group {report.group} has no round {report.round_id} with member {report.member_id}",
            hint="the central server may have been restarted; run the group again on all members",
        )
    mine = _judge(_with_report(mine, report, now_ms, presence_ms), now_ms, presence_ms)
    known = any(each.round_id == mine.round_id for each in rounds)
    rounds = tuple(mine if r.round_id == mine.round_id else r for r in rounds)
    rounds = rounds if known else (*rounds, mine)
    return tuple(r for r in rounds if not _is_forgotten(r, now_ms))[-MAX_ROUNDS:], mine


def _is_forgotten(round_: Round, now_ms: int) -> bool:
    return round_.decided and now_ms - round_.changed_ms > FORGET_SECONDS * 1000


def _joined(rounds: Rounds, report: MemberReport, now_ms: int, new_round_id: str) -> Round:
    """Return the round that a process joins, with it among the members."""
    newest = rounds[-1] if rounds else None
    member = Member(report.member_id, report.instance_id, Progress.FETCHING, now_ms)
    if newest is not None and not newest.decided:
        _check_joins(newest, report)
        return replace(newest, members=(*newest.members, member))
    if newest is not None and _tells_why(newest, report, now_ms):
        return replace(newest, members=(*newest.members, member))
    return Round(new_round_id, report.size, now_ms, members=(member,))


def _check_joins(round_: Round, report: MemberReport) -> None:
    if round_.size != report.size:
        raise ConfigurationError(
            f"group {report.group} has size {round_.size} according to member "
            f"{round_.members[0].member_id}, but size {report.size} according to member "
            f"{report.member_id}",
            hint="use the same size on all members, or another name for this group",
        )
    if round_.find(report.member_id) is not None:
        raise ConflictError(
            f"group {report.group} already has a running member {report.member_id}",
            hint="give each member a different id with --group-member",
        )
    if len(round_.members) == round_.size:
        raise ConfigurationError(
            f"group {report.group} already has all of its {round_.size} members: "
            f"{', '.join(member.member_id for member in round_.members)}",
            hint="use a different group name for each deployment; if the group has more members, "
            "state the larger size on all of them",
        )


def _tells_why(round_: Round, report: MemberReport, now_ms: int) -> bool:
    return (
        round_.phase is Phase.ABORTED
        and round_.size == report.size
        and len(round_.members) < round_.size
        and round_.find(report.member_id) is None
        and now_ms - round_.changed_ms <= LINGER_SECONDS * 1000
    )


def _with_report(round_: Round, report: MemberReport, now_ms: int, presence_ms: int) -> Round:
    """Write down what a member says; its time only now and then, to save writes."""
    if round_.decided:
        return round_
    members = []
    for member in round_.members:
        if member.instance_id == report.instance_id and report.progress > member.progress:
            member = Member(
                member.member_id,
                member.instance_id,
                report.progress,
                now_ms,
                report.artifact_id,
                report.roots,
                report.reason[:MAX_REASON_LENGTH],
            )
        elif member.instance_id == report.instance_id:
            is_old = now_ms - member.seen_ms >= presence_ms // _REFRESHES
            member = replace(member, seen_ms=now_ms) if is_old else member
        members.append(member)
    return replace(round_, members=tuple(members))


def _judge(round_: Round, now_ms: int, presence_ms: int) -> Round:
    """Decide a round as far as can be."""
    if round_.decided:
        return round_
    reason = _why_failed(round_, now_ms, presence_ms)
    if reason:
        return replace(round_, phase=Phase.ABORTED, reason=reason, changed_ms=now_ms)
    slowest = min(member.progress for member in round_.members)
    complete = len(round_.members) == round_.size
    phase = round_.phase
    if complete and slowest is Progress.MOVED:
        phase = Phase.DONE
    elif complete and slowest is Progress.STAGED:
        phase = Phase.COMMIT
    return round_ if phase is round_.phase else replace(round_, phase=phase, changed_ms=now_ms)


def _why_failed(round_: Round, now_ms: int, presence_ms: int) -> str:
    for member in round_.members:
        if member.progress is Progress.FAILED:
            quiet = _quiet_members(round_, now_ms, presence_ms)
            return "; ".join([f"member {member.member_id} failed: {member.reason}", *quiet])
    for member in round_.members:
        silent_ms = now_ms - member.seen_ms
        if silent_ms > presence_ms:
            return f"{_silence(member, now_ms)}; {_when_silent(member)}"
    holdings = {m.roots: m for m in round_.members if m.progress is Progress.MOVED}
    if len(holdings) > 1:
        what = "; ".join(
            f"{member.member_id} has {', '.join(roots) or 'nothing'} of artifact "
            f"{member.artifact_id}"
            for roots, member in sorted(holdings.items())
        )
        return f"members would hold different roots: {what}"
    return ""


def _quiet_members(round_: Round, now_ms: int, presence_ms: int) -> list[str]:
    """Describe members that probably caused another one's failure but are not given up yet."""
    return [
        _silence(member, now_ms)
        for member in round_.members
        if member.progress is not Progress.FAILED
        and now_ms - member.seen_ms > presence_ms * _QUIET_SHARE
    ]


def _silence(member: Member, now_ms: int) -> str:
    seconds = (now_ms - member.seen_ms) / 1000
    return f"member {member.member_id} was silent for {seconds:.0f} s"


def _when_silent(member: Member) -> str:
    if member.progress is Progress.MOVED:
        return "it had moved its part in when it fell silent, which its next install takes back"
    return f"it was {member.progress.name.lower()} when it fell silent"
