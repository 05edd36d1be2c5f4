"""What a central server says of a group is bounded before anyone acts on it."""

from __future__ import annotations

import math

import pytest

from mx_artifacts.core.groups import MAX_REASON_LENGTH, MAX_SIZE, PRESENCE_SECONDS
from mx_artifacts.errors import RemoteError
from mx_artifacts.wire.gen.mx_artifacts.v1 import group_pb2 as pb
from mx_artifacts.wire.groups import (
    MAX_PRESENCE_SECONDS,
    MIN_PRESENCE_SECONDS,
    GroupAnswer,
    answer_from_wire,
)


def answer(**fields: object) -> GroupAnswer:
    message = pb.GroupReportResponse(round_id="r", phase=1, **fields)  # type: ignore[arg-type]
    return answer_from_wire(message, 2, "head:8001")


@pytest.mark.parametrize(
    ("stated", "taken"),
    [
        (0.0, PRESENCE_SECONDS),
        (math.nan, PRESENCE_SECONDS),
        (-1.0, PRESENCE_SECONDS),
        (1e-30, MIN_PRESENCE_SECONDS),
        (5.0, 5.0),
        (math.inf, MAX_PRESENCE_SECONDS),
    ],
)
def test_presence_times(stated: float, taken: float) -> None:
    assert answer(presence_seconds=stated).presence_seconds == taken


def test_more_members_than_a_group_has_are_refused() -> None:
    member = pb.GroupMember(member_id="m", progress="GROUP_PROGRESS_FETCHING")
    assert len(answer(members=[member] * MAX_SIZE).round.members) == MAX_SIZE
    with pytest.raises(RemoteError, match="257 members"):
        answer(members=[member] * (MAX_SIZE + 1))


def test_a_reason_is_cut_and_harmless() -> None:
    reason = answer(reason="\x1b[2J" + "x" * 10_000).round.reason
    assert len(reason) == MAX_REASON_LENGTH
    assert reason.isprintable()
