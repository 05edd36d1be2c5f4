from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from mx_artifacts.bundle.spans import Span
from mx_artifacts.runtime.clock import FakeClock
from mx_artifacts.transfer.artifact.source import Source
from mx_artifacts.transfer.base import ReadableSource, SourceAddress
from mx_artifacts.transfer.read_scheduler import ReadScheduler
from mx_artifacts.transfer.timing import DEFAULT_TIMING

SPANS = [Span(0, number * 100, 100) for number in range(8)]


class FakeSource:
    """Has the spans in `numbers`; all where that is None."""

    address = SourceAddress("source:1", "id")

    def __init__(self, *numbers: int) -> None:
        self.numbers: set[int] | None = set(numbers) if numbers else None

    @property
    def is_complete(self) -> bool:
        return self.numbers is None

    def has(self, span: Span) -> bool:
        return self.numbers is None or span.offset // 100 in self.numbers

    def batch_of(self, first: Span, waiting: Sequence[Span]) -> list[Span]:
        return [first]


class FakeRead:
    def __init__(self) -> None:
        self.is_done = False

    def done(self) -> bool:
        return self.is_done

    def wait(self, timeout_seconds: float) -> None:
        raise NotImplementedError


def board_of(*sources: FakeSource) -> tuple[ReadScheduler[Span], FakeClock, list[Source]]:
    clock = FakeClock()
    board = ReadScheduler(SPANS, clock)
    asked = [cast(Source, source) for source in sources]
    for source in asked:
        board.add(source)
    return board, clock, asked


def taken_from(board: ReadScheduler[Span]) -> ReadableSource[Span] | None:
    work = board.take(0.0)
    return None if work is None else work[0]


def test_one_that_stalled_rests_for_as_long_as_its_read_is_under_way() -> None:
    board, clock, (good, bad) = board_of(FakeSource(), FakeSource())
    read = FakeRead()
    board.back_off(bad, read)
    board.record_read(good, SPANS[0], 1.0)
    assert board.active_count() == 1
    clock.advance(DEFAULT_TIMING.rest + 1)
    assert board.active_count() == 1
    assert not board.has_other(good, SPANS[0])
    read.is_done = True
    assert board.active_count() == 2
    assert board.has_other(good, SPANS[0])


def test_where_all_rest_one_read_shows_whether_one_delivers() -> None:
    board, _clock, sources = board_of(FakeSource(), FakeSource())
    for source in sources:
        board.back_off(source, FakeRead())
    assert {taken_from(board), taken_from(board)} == set(sources)
    assert taken_from(board) is None


def test_a_source_without_a_delivery_is_tried_once_if_others_delivered() -> None:
    board, _clock, (new, old) = board_of(FakeSource(), FakeSource())
    board.record_read(old, SPANS[0], 100.0)
    assert [taken_from(board) for _ in range(3)] == [new, old, old]
    board.record_read(new, SPANS[0], 1.0)
    assert taken_from(board) is new


def test_a_source_that_loses_parts_is_no_error() -> None:
    shrinking, answers = FakeSource(0), iter([True, True])  # when it is chosen, twice
    board, _clock, _ = board_of(shrinking)
    shrinking.has = lambda span: next(answers, False)  # type: ignore[method-assign]
    assert board.take(0.0) is None
    assert next(answers, None) is None
    assert not board.is_over


def test_only_one_of_no_use_is_dropped_and_not_while_it_is_read_from() -> None:
    board, _clock, (useful, useless) = board_of(FakeSource(3), FakeSource(99))
    assert board.is_moving()
    assert board.drop_useless() is useless
    assert board.drop_useless() is None
    assert taken_from(board) is useful
    assert not board.has_delivered(useful)
    assert board.is_moving()
    assert board.drop_useless() is None
    board.give_back(useful, [])
    assert not board.is_moving()
    assert board.drop_useless() is useful
