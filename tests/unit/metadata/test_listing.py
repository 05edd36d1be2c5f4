"""Rows judged, filtered, ordered and cut, without a store."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mx_artifacts.core.identity import SourceIdentity
from mx_artifacts.core.sources import SourceQuery, SourceStatus
from mx_artifacts.metadata.listing import matching, ordered, source_may_pass
from mx_artifacts.metadata.summary import SummaryRow

ROW = SummaryRow(
    mx_source_id="0" * 16,
    worker_id="w",
    model_name="m",
    worker_rank=3,
    updated_at_ms=100,
    status=SourceStatus.READY,
    training_step=0,
)

rows = st.builds(
    SummaryRow,
    mx_source_id=st.sampled_from(["a", "b"]),
    worker_id=st.text(max_size=2),
    model_name=st.just("m"),
    worker_rank=st.integers(0, 3),
    updated_at_ms=st.integers(0, 5),
)


@given(st.lists(rows), st.integers(0, 8))
def test_a_limit_cuts_the_newest_off_the_whole_order(listed: list[SummaryRow], limit: int) -> None:
    everything = ordered(listed, None)
    assert ordered(listed, limit) == (everything[:limit] if limit else everything)
    ages = [row.updated_at_ms for row in everything]
    assert ages == sorted(ages, reverse=True)


@pytest.mark.parametrize(
    ("query", "passes"),
    [
        (SourceQuery(), True),
        (SourceQuery(mx_source_id="0" * 16, model_name="m", worker_rank=3), True),
        (SourceQuery(mx_source_id="1" * 16), False),
        (SourceQuery(model_name="M"), False),
        (SourceQuery(worker_rank=0), False),
        (SourceQuery(min_updated_at_ms=100), True),
        (SourceQuery(min_updated_at_ms=101), False),
        (SourceQuery(min_training_step=0), True),
        (SourceQuery(min_training_step=1), False),
        (SourceQuery(status=SourceStatus.READY), True),
        (SourceQuery(status=SourceStatus.STALE), False),
        (SourceQuery(status=SourceStatus.READY, fresh_since_ms=101), False),
        (SourceQuery(status=SourceStatus.STALE, fresh_since_ms=101), True),
    ],
    ids=str,
)
def test_filters(query: SourceQuery, passes: bool) -> None:
    assert bool(matching([ROW], query)) is passes


def test_the_status_of_a_row_is_the_one_that_counts_now() -> None:
    [row] = matching([ROW], SourceQuery(fresh_since_ms=101))
    assert row == replace(ROW, status=SourceStatus.STALE)


@pytest.mark.parametrize(
    ("query", "passes"),
    [
        (SourceQuery(), True),
        (SourceQuery(model_name="m"), True),
        (SourceQuery(model_name="n"), False),
        (SourceQuery(min_training_step=0), True),
        (SourceQuery(min_training_step=1), False),
        (SourceQuery(worker_rank=9), True),
    ],
    ids=str,
)
def test_a_source_as_a_whole(query: SourceQuery, passes: bool) -> None:
    identity = SourceIdentity(model_name="m", extra_parameters={"training_step": "0"})
    assert source_may_pass(query, identity) is passes


def test_a_source_without_a_step_passes_no_least_step() -> None:
    assert not source_may_pass(SourceQuery(min_training_step=0), SourceIdentity(model_name="m"))
