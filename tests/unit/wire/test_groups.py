"""Messages of groups: what is said is understood, and what is not known is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mx_artifacts.core.groups import Member, MemberReport, Phase, Progress, Round
from mx_artifacts.errors import ConfigurationError, RemoteError
from mx_artifacts.wire.gen.mx_artifacts.v1 import group_pb2 as pb
from mx_artifacts.wire.groups import (
    GroupAnswer,
    answer_from_wire,
    answer_to_wire,
    report_from_wire,
    report_to_wire,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
reports = st.builds(
    MemberReport,
    group=texts,
    size=st.integers(0, 2**31 - 1),
    member_id=texts,
    instance_id=texts,
    round_id=texts,
    progress=st.sampled_from(Progress),
    artifact_id=texts,
    roots=st.lists(texts).map(sorted).map(tuple),
    reason=texts,
)
members = st.builds(Member, texts, st.just(""), st.sampled_from(Progress), seen_ms=st.just(0))
rounds = st.builds(
    Round,
    texts,
    st.integers(2, 9),
    st.just(0),
    st.sampled_from(Phase),
    st.lists(members, max_size=3).map(tuple),
    st.text("abcé ", max_size=5),  # other characters are escaped
)


@given(reports)
def test_a_report_is_understood_as_it_was_meant(report: MemberReport) -> None:
    assert report_from_wire(report_to_wire(report)) == report


@given(rounds, st.floats(1.0, 600.0, width=32))
def test_an_answer_is_understood_as_it_was_meant(round_: Round, presence: float) -> None:
    answer = GroupAnswer(round_, presence)
    assert answer_from_wire(answer_to_wire(answer), round_.size, "here") == answer


@pytest.mark.parametrize("progress", [0, 99])
def test_a_progress_that_is_not_known_is_the_caller_s_mistake(progress: int) -> None:
    message = pb.GroupReportRequest(progress=progress)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=f"progress {progress} is not known"):
        report_from_wire(message)


@pytest.mark.parametrize(
    "message",
    [
        pb.GroupReportResponse(phase=99),  # type: ignore[arg-type]
        pb.GroupReportResponse(
            phase="GROUP_PHASE_OPEN",
            members=[pb.GroupMember(progress=99)],  # type: ignore[arg-type]
        ),
    ],
)
def test_a_server_of_another_version_is_named_with_what_to_do(
    message: pb.GroupReportResponse,
) -> None:
    with pytest.raises(RemoteError, match="another version of the group protocol") as caught:
        answer_from_wire(message, 2, "here:1")
    assert "the same version" in caught.value.hint()
