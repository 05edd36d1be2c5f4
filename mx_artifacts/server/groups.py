"""GroupService: members of groups report their progress (core/groups.py has the rules)."""

from __future__ import annotations

import logging
import uuid

from mx_artifacts.core.groups import (
    FORGET_SECONDS,
    MemberReport,
    Phase,
    Round,
    Rounds,
    advance,
    check_report,
)
from mx_artifacts.errors import BackendUnavailableError
from mx_artifacts.metadata.ballots import rounds_from_json, rounds_to_json
from mx_artifacts.metadata.base import BallotStore
from mx_artifacts.runtime.clock import Clock, unix_ms
from mx_artifacts.server.answers import errors_as_status
from mx_artifacts.wire.gen.mx_artifacts.v1 import group_pb2 as pb
from mx_artifacts.wire.gen.mx_artifacts.v1 import group_pb2_grpc
from mx_artifacts.wire.groups import GroupAnswer, answer_to_wire, report_from_wire

logger = logging.getLogger(__name__)

_ATTEMPTS = 100
"""To write over others that write at the same time; one of them succeeds at each attempt."""


class GroupService(group_pb2_grpc.GroupServiceServicer):
    """Keeps nothing itself, so several servers may serve one group over a shared store."""

    def __init__(self, ballots: BallotStore, clock: Clock, presence_seconds: float) -> None:
        self._ballots = ballots
        self._clock = clock
        self._presence_seconds = presence_seconds

    @errors_as_status
    async def Report(self, request: pb.GroupReportRequest) -> pb.GroupReportResponse:
        """Take in what a member says; answer with its round as it is then."""
        report = report_from_wire(request)
        check_report(report)
        round_ = await self._take_in(report)
        return answer_to_wire(GroupAnswer(round_, self._presence_seconds))

    async def _take_in(self, report: MemberReport) -> Round:
        for _ in range(_ATTEMPTS):
            stored = await self._ballots.get_ballots(report.group)
            before = _read(report.group, stored)
            after, round_ = advance(
                before,
                report,
                now_ms=unix_ms(self._clock),
                presence_seconds=self._presence_seconds,
                new_round_id=uuid.uuid4().hex,
            )
            if after == before or await self._ballots.replace_ballots(
                report.group, stored, rounds_to_json(after), FORGET_SECONDS
            ):
                _log(report, before, round_)
                return round_
        raise BackendUnavailableError(
            f"the ballots of group {report.group} are changed by too many members at once",
            hint="try again",
        )


def _read(group: str, stored: bytes | None) -> Rounds:
    try:
        return rounds_from_json(stored) if stored is not None else ()
    except ValueError as error:
        logger.warning(
            "the ballots of group %s cannot be read; starting new ones: %s", group, error
        )
        return ()


def _log(report: MemberReport, before: Rounds, now: Round) -> None:
    phase = next((each.phase for each in before if each.round_id == now.round_id), Phase.OPEN)
    if now.phase is not phase:
        logger.info(
            "group %s, round %s: %s; %s%s",
            report.group,
            now.round_id,
            now.phase.name,
            now.describe(),
            f"; {now.reason}" if now.reason else "",
        )
