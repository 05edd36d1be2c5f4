"""One kind's failure does not stop the others."""

from __future__ import annotations

import pytest

from mx_artifacts.errors import BundleError, ConfigurationError, NoSourceError
from mx_artifacts.kinds.registry import get_kind
from mx_artifacts.observability.catalogue import KindFailed, KindSkipped
from mx_artifacts.observability.events import Event
from mx_artifacts.workflows.kind_outcomes import KindOutcomes, take_each
from mx_artifacts.workflows.selected_kind import SelectedKind

KINDS = [SelectedKind(get_kind(name)) for name in ("triton", "inductor", "tilelang")]


def test_failed_and_skipped_kinds_are_reported_and_returned_with_their_errors() -> None:
    absent, broken = NoSourceError("nobody"), BundleError("broken")
    errors = {"triton": absent, "inductor": broken}
    events: list[Event] = []

    def work(each: SelectedKind) -> str:
        if each.name in errors:
            raise errors[each.name]
        return f"{each.name} done"

    outcomes = take_each(KINDS, work, means_absent=(NoSourceError,), events=events.append)
    assert dict(outcomes.done) == {"tilelang": "tilelang done"}
    assert dict(outcomes.failed) == {"inductor": broken}
    assert dict(outcomes.skipped) == {"triton": absent}
    assert events == [KindSkipped("triton", absent), KindFailed("inductor", broken)]


def test_the_failure_of_a_single_kind_is_left_to_the_caller_to_tell() -> None:
    events: list[Event] = []

    def work(each: SelectedKind) -> None:
        raise ConfigurationError("no")

    outcomes: KindOutcomes[None] = take_each(KINDS[:1], work, events=events.append)
    assert list(outcomes.failed) == ["triton"]
    assert events == []


def test_a_kind_without_a_result_is_in_none_of_the_outcomes() -> None:
    outcomes: KindOutcomes[None] = take_each(KINDS, lambda each: None, events=lambda event: None)
    assert (outcomes.done, outcomes.failed, outcomes.skipped) == ({}, {}, {})


@pytest.mark.parametrize("error", [KeyboardInterrupt(), BrokenPipeError()], ids=repr)
def test_an_exception_that_is_not_of_this_library_ends_the_work(error: BaseException) -> None:
    taken = []

    def work(each: SelectedKind) -> None:
        taken.append(each.name)
        raise error

    with pytest.raises(type(error)):
        take_each(KINDS, work, events=lambda event: None)
    assert taken == ["triton"]
