"""Installs new artifacts of sources again and again, until it is asked to stop."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from mx_artifacts.artifacts.target.fetch_values import FetchResult
from mx_artifacts.errors import ConfigurationError, MxArtifactsError
from mx_artifacts.fetcher import ArtifactFetcher
from mx_artifacts.identity.identify import ProbedIdentity
from mx_artifacts.observability.catalogue import FollowFailed
from mx_artifacts.observability.events import EventSink, ignore_events
from mx_artifacts.workflows.fetch_kinds import FetchedKind, FetchKindsRequest, identified
from mx_artifacts.workflows.follow_settings import FollowSettings
from mx_artifacts.workflows.kind_outcomes import KindOutcomes
from mx_artifacts.workflows.selected_kind import SelectedKind
from mx_artifacts.workflows.stop import Stop


def check_followable(request: FetchKindsRequest) -> None:
    """Refuse a request that leaves nothing to follow.

    Raises:
        ConfigurationError: the request has a group, or names one artifact.
    """
    if request.is_grouped:
        raise ConfigurationError(
            "sources cannot be followed with a group, because its members agree on one install "
            "only",
            hint="follow sources without a group",
        )
    if request.wanted.artifact_id:
        raise ConfigurationError(
            "sources cannot be followed with an artifact id, because only that artifact would be "
            "fetched",
            hint="follow sources without an artifact id",
        )


@dataclass
class _Followed:
    """A kind, its installed artifacts, and the last failure that was reported."""

    selected: SelectedKind
    probed: ProbedIdentity
    installed_ids: set[str] = dataclasses.field(default_factory=set)
    told_failure: type[MxArtifactsError] | None = None

    def has_installed(self, result: FetchResult) -> None:
        """Do not install this artifact again."""
        self.installed_ids.add(result.source.artifact_id)


class SourcesFollower:
    """Checks sources for new artifacts of fetched kinds, and installs them.

    It installs an artifact only once. So if sources serve different artifacts, it does not
    alternate between them. The time of a record does not show which artifact is newer, because
    heartbeats change it.

    An event reports a failed check once, until another check succeeds; each check tries again.
    """

    def __init__(
        self,
        fetcher: ArtifactFetcher,
        request: FetchKindsRequest,
        fetched: KindOutcomes[FetchedKind],
        settings: FollowSettings,
        *,
        on_fetched: Callable[[FetchedKind], object],
        events: EventSink = ignore_events,
    ) -> None:
        """Follow every kind of the request that can be identified on this node.

        `fetched` is what `fetch_kinds` returned for the same request. `on_fetched` is called with
        each kind of which a new artifact was installed.

        Raises:
            ConfigurationError: as `check_followable`.
        """
        check_followable(request)
        self._fetcher = fetcher
        self._request = request
        self._interval_seconds = settings.interval_seconds
        self._on_fetched = on_fetched
        self._events = events
        self._followed = [_Followed(each, probed) for each, probed in identified(request)]
        for each in self._followed:
            if each.selected.name in fetched.done:
                each.has_installed(fetched.done[each.selected.name].result)

    def run(self, stop: Stop) -> None:
        """Check every `settings.interval_seconds` until the request to stop."""
        while not stop.wait(self._interval_seconds):
            for each in self._followed:
                stop.run(partial(self._look_after, each))

    def _look_after(self, followed: _Followed) -> None:
        try:
            result = self._fetch_newest(followed)
        except MxArtifactsError as error:
            if followed.told_failure is not type(error):
                followed.told_failure = type(error)
                self._events(FollowFailed(followed.selected.name, error))
            return
        followed.told_failure = None
        if result is not None:
            self._on_fetched(FetchedKind(followed.selected, followed.probed, result))

    def _fetch_newest(self, followed: _Followed) -> FetchResult | None:
        selected, identity = followed.selected, followed.probed.identity
        wanted = self._request.wanted_for(followed.probed)
        newest = self._fetcher.newest_besides(
            followed.installed_ids,
            selected.kind,
            identity,
            selected.stated_roots,
            wanted=wanted,
        )
        if newest is None:
            return None
        result = self._fetcher.fetch_and_install(
            selected.kind,
            identity,
            selected.stated_roots,
            wanted=dataclasses.replace(wanted, artifact_id=newest.artifact_id),
            replace=self._request.replace,
        )
        followed.has_installed(result)
        return result
