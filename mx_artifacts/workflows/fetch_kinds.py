"""Fetches several kinds in the only safe order, or returns what a fetch would do."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from mx_artifacts.artifacts.target.fetch_values import FetchPlan, FetchResult
from mx_artifacts.artifacts.target.group_member import GroupWanted
from mx_artifacts.artifacts.target.suitability import ANY_SOURCE, SourceWanted
from mx_artifacts.errors import ConfigurationError, NoSourceError
from mx_artifacts.fetcher import ArtifactFetcher
from mx_artifacts.identity.identify import ProbedIdentity
from mx_artifacts.observability.catalogue import IdentityUnchecked, RootUngrouped
from mx_artifacts.observability.events import EventSink, ignore_events
from mx_artifacts.workflows.kind_outcomes import KindOutcomes, take_each
from mx_artifacts.workflows.selected_kind import SelectedKind

_T = TypeVar("_T")
_ABSENT = (NoSourceError, ConfigurationError)
"""What says that a kind has no source, or nothing on this node that could use it."""


@dataclass(frozen=True)
class FetchKindsRequest:
    """Which caches are fetched, from which sources, and how they are installed.

    Attributes:
        selected: the kinds; no kind twice.
        identify: called with each kind; returns its identity on this node. It is called more than
            once for a kind, so it should remember what it found, as `probe_identity` does.
        wanted: which sources will do. Without an accelerator, that of each identity counts.
        replace: replace entries that the roots already hold; default: keep them.
        group: on whose nodes all or none install; all of them must name the same kinds. A group of
            size 1 says that there is this node only.
        skip_absent: skip a kind that has no source, or that cannot be identified here; wait for
            sources of any of the kinds, not of each.
    """

    selected: tuple[SelectedKind, ...]
    identify: Callable[[SelectedKind], ProbedIdentity]
    wanted: SourceWanted = ANY_SOURCE
    replace: bool = False
    group: GroupWanted | None = None
    skip_absent: bool = False

    def __post_init__(self) -> None:
        if self.is_grouped and self.skip_absent:
            raise ConfigurationError(
                "a group cannot agree on all kinds (skip_absent, --kind all), because its nodes "
                "may find sources of different kinds",
                hint="name the same kinds on all nodes",
            )

    @property
    def is_grouped(self) -> bool:
        """Whether other nodes take part."""
        return self.group is not None and self.group.size > 1

    def in_order(self) -> tuple[SelectedKind, ...]:
        """Return the kinds in the order in which they are fetched.

        Members of a group take them by name, since members that took them in different orders
        would wait for each other.
        """
        if not self.is_grouped:
            return self.selected
        return tuple(sorted(self.selected, key=lambda each: each.name))

    def wanted_for(self, probed: ProbedIdentity) -> SourceWanted:
        """Return which sources will do for a kind with this identity."""
        return dataclasses.replace(
            self.wanted,
            accelerator=self.wanted.accelerator or probed.accelerator,
            # Nobody knows which kinds will get a source, so none is waited for alone.
            wait_seconds=0.0 if self.skip_absent else self.wanted.wait_seconds,
        )


@dataclass(frozen=True)
class FetchedKind:
    """A kind that was fetched and installed, by which identity, and what was done."""

    selected: SelectedKind
    probed: ProbedIdentity
    result: FetchResult


@dataclass(frozen=True)
class PlannedKind:
    """A kind that would be fetched, and how many entries each root holds now.

    `existing_entries` is empty where nothing would be fetched.
    """

    selected: SelectedKind
    probed: ProbedIdentity
    plan: FetchPlan
    existing_entries: Mapping[Path, int]


def _tell_nobody(_: object) -> None:
    """Ignore the outcome of a kind."""


def fetch_kinds(
    fetcher: ArtifactFetcher,
    request: FetchKindsRequest,
    *,
    on_fetched: Callable[[FetchedKind], object] = _tell_nobody,
    events: EventSink = ignore_events,
) -> KindOutcomes[FetchedKind]:
    """Fetch and install each kind; return all outcomes.

    A kind that fails does not stop the others. `on_fetched` is called with each kind as soon as it
    is installed. It is possible that nothing of an installed kind is usable: see
    `InstallReport.nothing_usable`.

    Raises:
        MetadataError: with `skip_absent`, no central server answered while sources were waited for.
    """

    def fetch(each: SelectedKind) -> FetchedKind:
        probed = _begin(request, each, events)
        result = fetcher.fetch_and_install(
            each.kind,
            probed.identity,
            each.stated_roots,
            wanted=request.wanted_for(probed),
            replace=request.replace,
            group=request.group,
        )
        fetched = FetchedKind(each, probed, result)
        on_fetched(fetched)
        return fetched

    return _take_each(fetcher, request, fetch, events)


def plan_kinds(
    fetcher: ArtifactFetcher,
    request: FetchKindsRequest,
    *,
    on_planned: Callable[[PlannedKind], object] = _tell_nobody,
    events: EventSink = ignore_events,
) -> KindOutcomes[PlannedKind]:
    """Return what `fetch_kinds` with the same request would do; change nothing and join no group.

    `on_planned` is called with each kind as soon as it is known. Raises as `fetch_kinds`.
    """

    def plan(each: SelectedKind) -> PlannedKind:
        probed = _begin(request, each, events)
        found = fetcher.plan(
            each.kind,
            probed.identity,
            each.stated_roots,
            wanted=request.wanted_for(probed),
            replace=request.replace,
        )
        existing: Mapping[Path, int] = {}
        if found.already is None:
            existing = fetcher.count_existing_entries(each.kind, probed.identity, each.stated_roots)
        planned = PlannedKind(each, probed, found, existing)
        on_planned(planned)
        return planned

    return _take_each(fetcher, request, plan, events)


def _take_each(
    fetcher: ArtifactFetcher,
    request: FetchKindsRequest,
    work: Callable[[SelectedKind], _T],
    events: EventSink,
) -> KindOutcomes[_T]:
    if request.skip_absent and request.wanted.wait_seconds:
        identities = [probed.identity for _, probed in identified(request)]
        fetcher.wait_for_some(identities, request.wanted.wait_seconds)
    means_absent = _ABSENT if request.skip_absent else ()
    return take_each(request.in_order(), work, means_absent=means_absent, events=events)


def _begin(request: FetchKindsRequest, selected: SelectedKind, events: EventSink) -> ProbedIdentity:
    """Return the kind's identity; report unchecked values, and roots that need a group."""
    probed = request.identify(selected)
    if probed.unchecked:
        events(IdentityUnchecked(selected.name, probed.unchecked))
    if request.group is None:
        for rule in selected.kind.roots:
            if rule.required_identity and rule.name in selected.stated_roots:
                events(RootUngrouped(selected.name, rule.name))
    return probed


def identified(request: FetchKindsRequest) -> list[tuple[SelectedKind, ProbedIdentity]]:
    """Return those of the kinds that can be identified on this node, each with its identity."""
    found = []
    for each in request.in_order():
        with suppress(ConfigurationError):
            found.append((each, request.identify(each)))
    return found
