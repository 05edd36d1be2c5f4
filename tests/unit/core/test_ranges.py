"""Sets of byte positions, which a peer may state in any order."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mx_artifacts.core.ranges import Ranges
from mx_artifacts.errors import ManifestInvalidError
from mx_artifacts.wire import extension
from mx_artifacts.wire.gen.mx_artifacts.v1 import source_pb2 as pb

PAIRS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)))


@given(PAIRS, st.randoms(use_true_random=False))
def test_ranges_are_the_positions_in_them(
    pairs: list[tuple[int, int]], chance: random.Random
) -> None:
    positions = {at for start, end in pairs for at in range(start, end)}
    ranges = Ranges(pairs)
    chance.shuffle(pairs)
    one_by_one = Ranges()
    for start, end in pairs:
        one_by_one.add(start, end)
    assert list(ranges) == list(one_by_one)
    assert {at for start, end in ranges for at in range(start, end)} == positions
    assert all(
        one[1] < other[0] for one, other in zip(list(ranges), list(ranges)[1:], strict=False)
    )
    for start in range(0, 41, 5):
        for end in range(start, 41, 5):
            assert ranges.has(start, end) == positions.issuperset(range(start, end))


def availability(count: int) -> pb.Availability:
    """What a seed has: every other position, the last one first."""
    ranges = [pb.BundleRange(offset=2 * n, length=1) for n in reversed(range(count))]
    return pb.Availability(ranges=ranges)


def test_as_many_ranges_as_a_seed_can_have_are_taken_in_any_order() -> None:
    found = extension.availability_from_wire(availability(extension.MAX_AVAILABLE_RANGES))
    assert found is not None
    assert found[0].has(100, 101)
    assert not found[0].has(100, 102)


def test_more_ranges_are_refused() -> None:
    with pytest.raises(ManifestInvalidError, match="65537 ranges"):
        extension.availability_from_wire(availability(extension.MAX_AVAILABLE_RANGES + 1))


def test_who_has_everything_says_no_ranges() -> None:
    assert extension.availability_from_wire(pb.Availability(complete=True)) is None
