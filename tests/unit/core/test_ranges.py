"""Sets of byte positions as ranges: beside a plain set, they say the same."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from mx_artifacts.core.ranges import Ranges

SIZE = 24
ends = st.integers(0, SIZE)
some_ranges = st.lists(st.tuples(ends, ends), max_size=8)


def positions(ranges: list[tuple[int, int]]) -> set[int]:
    return {at for start, end in ranges for at in range(start, end)}


def added_in_turn(ranges: list[tuple[int, int]]) -> Ranges:
    """Return a set to which these were added one by one; the constructor sorts them before."""
    found = Ranges()
    for start, end in ranges:
        found.add(start, end)
    return found


@given(some_ranges)
def test_ranges_hold_what_was_put_in_and_nothing_else(added: list[tuple[int, int]]) -> None:
    assert positions(list(added_in_turn(added))) == positions(added)
    assert list(Ranges(added)) == list(added_in_turn(added))


@given(some_ranges)
def test_they_are_in_order_and_no_two_touch(added: list[tuple[int, int]]) -> None:
    found = list(added_in_turn(added))
    assert all(start < end for start, end in found)
    assert all(end < later for (_, end), (later, _) in itertools.pairwise(found))


@given(some_ranges, ends, ends)
def test_a_range_is_in_it_when_each_of_its_positions_is(
    added: list[tuple[int, int]], start: int, end: int
) -> None:
    assert added_in_turn(added).has(start, end) == (set(range(start, end)) <= positions(added))


def test_an_empty_range_adds_nothing_and_is_in_every_set() -> None:
    ranges = Ranges([(5, 5), (7, 3)])
    assert list(ranges) == []
    assert ranges.has(9, 9)
    assert not ranges.has(9, 10)


def test_ranges_added_during_an_iteration_are_not_visited() -> None:
    ranges = Ranges([(0, 1), (2, 3)])
    met = []
    for each in ranges:
        ranges.add(10, 11)
        met.append(each)
    assert met == [(0, 1), (2, 3)]
    assert list(Ranges(ranges)) == [(0, 1), (2, 3), (10, 11)]
