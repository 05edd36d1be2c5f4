"""Publishes kinds when their roots get files, and again when they have changed and settled."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from mx_artifacts.artifacts.source.watch import RootsWatch
from mx_artifacts.errors import BundleError, MxArtifactsError
from mx_artifacts.observability.catalogue import (
    PublishFailed,
    RootsAwaited,
    RootsSettling,
    RootsUnsettled,
)
from mx_artifacts.observability.events import EventSink, ignore_events
from mx_artifacts.publisher import ArtifactPublisher
from mx_artifacts.runtime.clock import SYSTEM_CLOCK, Clock
from mx_artifacts.workflows.follow_settings import FollowSettings
from mx_artifacts.workflows.kind_outcomes import KindOutcomes, take_each
from mx_artifacts.workflows.publish_kinds import PublishedKind, PublishKindsRequest, publish_kind
from mx_artifacts.workflows.selected_kind import SelectedKind
from mx_artifacts.workflows.stop import Stop


@dataclass
class _Followed:
    """A kind, its served artifact, and what was reported since it was last sealed."""

    selected: SelectedKind
    watch: RootsWatch
    published: PublishedKind | None = None
    told_failure: type[MxArtifactsError] | None = None
    told_unsettled: bool = False


class RootsFollower:
    """Publishes kinds when their roots have files, and again when these have changed.

    Call `start`, then `run`. If a kind cannot be sealed, its last artifact is still served. An
    event reports that once, until another attempt succeeds.
    """

    def __init__(
        self,
        publisher: ArtifactPublisher,
        request: PublishKindsRequest,
        settings: FollowSettings,
        *,
        on_published: Callable[[PublishedKind], object],
        events: EventSink = ignore_events,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Check nothing yet. `on_published` is called with each kind that was published (again)."""
        self._publisher = publisher
        self._request = request
        self._settings = settings
        self._on_published = on_published
        self._events = events
        self._clock = clock
        self._followed: list[_Followed] = []

    @property
    def waited_for(self) -> list[str]:
        """The names of the kinds that are not served yet."""
        return [each.selected.name for each in self._followed if each.published is None]

    def start(self) -> KindOutcomes[PublishedKind]:
        """Publish the kinds whose roots have files; follow these kinds and the others.

        The outcomes do not include kinds whose roots have no files yet. A kind is among the failed,
        and is not followed, if later changes of its roots cannot help.
        """
        return take_each(self._request.selected, self._follow, events=self._events)

    def run(self, stop: Stop) -> None:
        """Check all followed kinds again and again until the request to stop."""
        while not stop.wait(self._settings.interval_seconds):
            for each in self._followed:
                stop.run(partial(self._look_after, each))

    def _follow(self, selected: SelectedKind) -> PublishedKind | None:
        root, decided_by = selected.locate(selected.kind.roots[0])
        roots = selected.roots_to_pack()
        watch = RootsWatch(roots, settle_seconds=self._settings.settle_seconds, clock=self._clock)
        followed = _Followed(selected, watch)
        if not watch.holds_files:
            self._events(RootsAwaited(selected.name, str(root), decided_by))
        elif self._settings.settle_seconds:
            self._events(RootsSettling(tuple(str(each) for each, _ in roots)))
            watch.sealed(settled=False)
        else:
            try:
                self._publish(followed)
            except BundleError as error:
                self._tell_failure(followed, error)
        self._followed.append(followed)
        return followed.published

    def _look_after(self, followed: _Followed) -> None:
        if not followed.watch.due():
            self._tell_unsettled(followed)
            return
        try:
            if followed.published is None:
                self._publish(followed)
            else:
                self._publish_again(followed, followed.published)
        except MxArtifactsError as error:
            self._tell_failure(followed, error)

    def _publish(self, followed: _Followed) -> None:
        published = publish_kind(self._publisher, self._request, followed.selected, self._events)
        followed.published = published
        self._on_published(published)
        self._sealed(followed)
        if any(root.report.skipped for root in published.result.roots):
            followed.watch.sealed(settled=False)

    def _publish_again(self, followed: _Followed, before: PublishedKind) -> None:
        result = self._publisher.republish(before.result)
        self._sealed(followed)
        if result is not before.result:
            now = dataclasses.replace(before, result=result, before=before.result)
            followed.published = now
            self._on_published(now)

    def _sealed(self, followed: _Followed) -> None:
        followed.watch.sealed()
        followed.told_failure, followed.told_unsettled = None, False

    def _tell_failure(self, followed: _Followed, error: MxArtifactsError) -> None:
        """Report the failure once. Try again without a change of the roots if that may help."""
        followed.watch.sealed(settled=not error.retryable)
        if followed.told_failure is type(error):
            return
        followed.told_failure = type(error)
        is_served = followed.published is not None
        self._events(PublishFailed(followed.selected.name, error, is_served))

    def _tell_unsettled(self, followed: _Followed) -> None:
        seconds = followed.watch.unsealed_seconds
        if followed.told_unsettled or seconds < self._settings.patience_seconds:
            return
        followed.told_unsettled = True
        is_served = followed.published is not None
        self._events(RootsUnsettled(followed.selected.name, seconds, is_served))
