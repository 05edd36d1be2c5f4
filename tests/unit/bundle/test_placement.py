"""Entries find a place whatever becomes of others, with little memory for it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mx_artifacts.bundle import placement as placing
from mx_artifacts.bundle.layout import EntryLayout
from mx_artifacts.bundle.placement import EntryPlacement, OverflowBuffers, compact
from mx_artifacts.memory.buffers import Buffer, FileBuffer


def layout(name: str, length: int) -> EntryLayout:
    return EntryLayout(name, (), (), (), length)


@pytest.mark.parametrize("in_target", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_ranks_are_closed_part_by_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, in_target: bool
) -> None:
    """Some fell out, and others come from elsewhere, shorter or longer than what lay there."""
    monkeypatch.setattr(placing, "_MOVED_BYTES", 7)
    rng = random.Random(seed)
    memory = FileBuffer(tmp_path, 1000)
    spare = OverflowBuffers(Buffer)
    places, expected, start = [], b"", 0
    for number in range(20):
        length = rng.randint(1, 40)
        fate = rng.choice(["stays", "stays", "falls out", "changed"])
        if fate == "stays":
            place = EntryPlacement(
                layout(str(number), length), start, memory.view[start : start + length]
            )
        elif fate == "changed":
            place, _ = spare.place(layout(str(number), rng.randint(1, 40)))
        start += length
        if fate != "falls out":
            content = rng.randbytes(place.layout.length)
            place.space[:] = content
            places.append(place)
            expected += content
    final = memory if in_target else FileBuffer(tmp_path, 1000)
    compact(places, final, (memory, *spare.memories), in_target=in_target)
    assert final.view[: len(expected)] == expected
    at = 0
    for place in places:
        assert place.start == at
        assert len(place.space) == place.layout.length
        at += place.layout.length
    for each in (memory, final, spare):
        each.close()


def test_spare_places_take_little_plain_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placing, "_PLAIN_BYTES", 1000)
    allocated: list[Buffer] = []

    def allocate(length: int) -> Buffer:
        allocated.append(Buffer(length))
        return allocated[-1]

    spare = OverflowBuffers(allocate)
    lengths = [600, 500, 400, 501, 5000, 10]
    made = [spare.place(layout(str(n), length))[0] for n, length in enumerate(lengths)]
    assert [each.length for each in allocated] == [1000, 1000, 5000, 1000]
    for number, place in enumerate(made):
        assert bytes(place.space) == bytes(lengths[number])
        place.space[:] = bytes([number + 1]) * lengths[number]
    assert [place.space[0] for place in made] == [place.space[-1] for place in made]
    assert [place.space[0] for place in made] == list(range(1, 7))
    spare.close()
    spare.close()
    assert not spare.memories
