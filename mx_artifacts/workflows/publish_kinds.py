"""Publishes several kinds together, each under one identity or several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mx_artifacts.identity.identify import ProbedIdentity
from mx_artifacts.observability.catalogue import IdentityUnchecked, SealStarted
from mx_artifacts.observability.events import EventSink, ignore_events
from mx_artifacts.publisher import ArtifactPublisher, PublishResult
from mx_artifacts.workflows.kind_outcomes import KindOutcomes, take_each
from mx_artifacts.workflows.selected_kind import SelectedKind


@dataclass(frozen=True)
class PublishKindsRequest:
    """Which caches are published, and under which identities.

    Attributes:
        selected: the kinds; no kind twice.
        identify: called with each kind; returns its identity on this node, and further ones under
            which the same cache is announced too.
        accelerator: family of the device that the caches are for; "": as each identity says.
        require_ranks: how many complete ranks each model must have, as for
            `ArtifactPublisher.publish`.
    """

    selected: tuple[SelectedKind, ...]
    identify: Callable[[SelectedKind], Sequence[ProbedIdentity]]
    accelerator: str = ""
    require_ranks: int | None = None


@dataclass(frozen=True)
class PublishedKind:
    """A kind that is served now, and its first identity.

    `before` is what was served of it until now, where this replaces that.
    """

    selected: SelectedKind
    probed: ProbedIdentity
    result: PublishResult
    before: PublishResult | None = None


def _tell_nobody(_: PublishedKind) -> None:
    """Ignore what was published."""


def publish_kinds(
    publisher: ArtifactPublisher,
    request: PublishKindsRequest,
    *,
    on_published: Callable[[PublishedKind], object] = _tell_nobody,
    events: EventSink = ignore_events,
) -> KindOutcomes[PublishedKind]:
    """Seal, serve and announce each kind; return all outcomes.

    A kind that fails does not stop the others. `on_published` is called with each kind as soon as
    it is announced.
    """

    def publish(each: SelectedKind) -> PublishedKind:
        published = publish_kind(publisher, request, each, events)
        on_published(published)
        return published

    return take_each(request.selected, publish, events=events)


def publish_kind(
    publisher: ArtifactPublisher,
    request: PublishKindsRequest,
    selected: SelectedKind,
    events: EventSink = ignore_events,
) -> PublishedKind:
    """Seal, serve and announce one of the request's kinds.

    Raises:
        MxArtifactsError: as `ArtifactPublisher.publish` and `request.identify`.
    """
    probed, *others = identities = request.identify(selected)
    for each in identities:
        if each.unchecked:
            events(IdentityUnchecked(selected.name, each.unchecked))
    events(SealStarted(selected.name))
    result = publisher.publish(
        selected.kind,
        probed.identity,
        selected.stated_roots,
        accelerator=request.accelerator or probed.accelerator,
        also=[other.identity for other in others],
        require_ranks=request.require_ranks,
    )
    return PublishedKind(selected, probed, result)
