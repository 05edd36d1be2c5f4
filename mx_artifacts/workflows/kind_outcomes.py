"""Takes several kinds one after the other; the failure of one does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from mx_artifacts.errors import MxArtifactsError
from mx_artifacts.observability.catalogue import KindFailed, KindSkipped
from mx_artifacts.observability.events import EventSink
from mx_artifacts.workflows.selected_kind import SelectedKind

T = TypeVar("T")


@dataclass(frozen=True)
class KindOutcomes(Generic[T]):
    """The outcomes of several kinds, by the kind's name, in the order of work.

    Attributes:
        done: the kinds that succeeded, each with its result.
        failed: the kinds that failed, each with its error.
        skipped: the kinds that may be absent and are, each with the error that says so.
    """

    done: Mapping[str, T] = field(default_factory=dict)
    failed: Mapping[str, MxArtifactsError] = field(default_factory=dict)
    skipped: Mapping[str, MxArtifactsError] = field(default_factory=dict)


def take_each(
    selected: Sequence[SelectedKind],
    work: Callable[[SelectedKind], T | None],
    *,
    means_absent: tuple[type[MxArtifactsError], ...] = (),
    events: EventSink,
) -> KindOutcomes[T]:
    """Call `work` for each kind; return all outcomes.

    A kind for which `work` returns None is in none of the outcomes. Errors of the classes
    `means_absent` skip a kind. An exception that is not of this library ends the work.
    """
    done: dict[str, T] = {}
    failed: dict[str, MxArtifactsError] = {}
    skipped: dict[str, MxArtifactsError] = {}
    for each in selected:
        try:
            result = work(each)
        except means_absent as error:
            skipped[each.name] = error
            events(KindSkipped(each.name, error))
        except MxArtifactsError as error:
            failed[each.name] = error
            if len(selected) > 1:
                events(KindFailed(each.name, error))
        else:
            if result is not None:
                done[each.name] = result
    return KindOutcomes(done, failed, skipped)
