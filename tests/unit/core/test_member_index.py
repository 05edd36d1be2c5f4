"""Indexes cut into pages and joined again."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from mx_artifacts.core.member_index import MemberIndex, joined


def index_of(count: int, with_blocks: set[int]) -> MemberIndex:
    return MemberIndex(
        [f"m{number}" for number in range(count)],
        [number % 2 == 0 for number in range(count)],
        list(range(count)),
        [0o644] * count,
        [10 + number for number in range(count)],
        [20 + number for number in range(count)],
        {number: (number, number + 1) for number in with_blocks},
    )


@given(st.data(), st.integers(0, 12))
def test_an_index_cut_anywhere_is_the_same_when_it_is_joined(
    data: st.DataObject, count: int
) -> None:
    numbers = st.integers(0, max(0, count - 1))
    with_blocks = data.draw(st.sets(numbers)) if count else set()
    cuts = sorted(data.draw(st.lists(st.integers(0, count), max_size=4)))
    index = index_of(count, with_blocks)
    bounds = [0, *cuts, count]
    parts = [index.part(start, end) for start, end in itertools.pairwise(bounds)]
    assert joined(parts) == index
    assert [len(part) for part in parts] == [
        end - start for start, end in itertools.pairwise(bounds)
    ]


def test_a_part_counts_its_blocks_from_its_own_first_member() -> None:
    part = index_of(5, {0, 2, 4}).part(2, 4)
    assert part.paths == ["m2", "m3"]
    assert part.blocks == {0: (2, 3)}


def test_no_parts_are_an_index_without_members() -> None:
    assert len(joined([])) == 0
    assert joined([]).blocks == {}
