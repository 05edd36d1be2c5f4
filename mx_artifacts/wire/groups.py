"""Conversion between messages of GroupService and core types."""

from __future__ import annotations

from typing import NamedTuple, cast

from mx_artifacts.core.foreign_text import shown
from mx_artifacts.core.groups import (
    MAX_REASON_LENGTH,
    MAX_SIZE,
    PRESENCE_SECONDS,
    Member,
    MemberReport,
    Phase,
    Progress,
    Round,
)
from mx_artifacts.errors import ConfigurationError, RemoteError
from mx_artifacts.wire.gen.mx_artifacts.v1 import group_pb2 as pb

MIN_PRESENCE_SECONDS = 1.0
"""Minimum presence time [s]; with a shorter one, a member would only send reports."""
MAX_PRESENCE_SECONDS = 600.0
"""Maximum presence time [s]; a member that has moved takes back if it gets no answer in it."""


class GroupAnswer(NamedTuple):
    """A member's round as the server knows it; members without times, artifacts and roots.

    A member that says nothing for `presence_seconds` is given up.
    """

    round: Round
    presence_seconds: float


def report_to_wire(report: MemberReport) -> pb.GroupReportRequest:
    """Return the message of `report`."""
    return pb.GroupReportRequest(
        group=report.group,
        size=report.size,
        member_id=report.member_id,
        instance_id=report.instance_id,
        round_id=report.round_id,
        progress=cast(pb.GroupProgress, report.progress),
        artifact_id=report.artifact_id,
        roots=report.roots,
        reason=report.reason,
    )


def report_from_wire(message: pb.GroupReportRequest) -> MemberReport:
    """Return the report of `message`.

    Raises:
        ConfigurationError: its progress is none that this version knows.
    """
    try:
        progress = Progress(message.progress)
    except ValueError:
        raise ConfigurationError(f"progress {message.progress} is not known") from None
    return MemberReport(
        group=message.group,
        size=message.size,
        member_id=message.member_id,
        instance_id=message.instance_id,
        round_id=message.round_id,
        progress=progress,
        artifact_id=message.artifact_id,
        roots=tuple(sorted(message.roots)),
        reason=message.reason,
    )


def answer_to_wire(answer: GroupAnswer) -> pb.GroupReportResponse:
    """Return the message of `answer`."""
    return pb.GroupReportResponse(
        round_id=answer.round.round_id,
        phase=cast(pb.GroupPhase, answer.round.phase),
        reason=answer.round.reason,
        members=[
            pb.GroupMember(
                member_id=member.member_id, progress=cast(pb.GroupProgress, member.progress)
            )
            for member in answer.round.members
        ],
        presence_seconds=answer.presence_seconds,
    )


def answer_from_wire(message: pb.GroupReportResponse, size: int, address: str) -> GroupAnswer:
    """Return the answer of the server at `address` about a group of `size`.

    Raises:
        RemoteError: it has a value that this version does not know, or more members than a group.
    """
    if len(message.members) > MAX_SIZE:
        raise RemoteError(
            f"central server {address} lists {len(message.members)} members of a group, but a "
            f"group has at most {MAX_SIZE}"
        )
    try:
        phase = Phase(message.phase)
        members = tuple(
            Member(member.member_id, "", Progress(member.progress), seen_ms=0)
            for member in message.members
        )
    except ValueError as error:
        raise RemoteError(
            f"central server {address} uses another version of the group protocol: {error}",
            hint="run the same version of mx-artifacts on all nodes",
        ) from None
    round_ = Round(
        message.round_id, size, 0, phase, members, shown(message.reason, MAX_REASON_LENGTH)
    )
    return GroupAnswer(round_, _bounded(message.presence_seconds))


def _bounded(presence_seconds: float) -> float:
    """Return the presence time that a server states, within what a member can live with."""
    if not presence_seconds > 0:  # not stated, or no number
        return PRESENCE_SECONDS
    return min(max(presence_seconds, MIN_PRESENCE_SECONDS), MAX_PRESENCE_SECONDS)
