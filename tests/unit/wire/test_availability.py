"""What a seed says that it has, which a peer may state in any order and number."""

from __future__ import annotations

import pytest

from mx_artifacts.errors import ManifestInvalidError
from mx_artifacts.wire import extension
from mx_artifacts.wire.gen.mx_artifacts.v1 import source_pb2 as pb


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
    with pytest.raises(ManifestInvalidError, match="65537 available ranges"):
        extension.availability_from_wire(availability(extension.MAX_AVAILABLE_RANGES + 1))


def test_a_complete_source_lists_no_ranges() -> None:
    assert extension.availability_from_wire(pb.Availability(complete=True)) is None
