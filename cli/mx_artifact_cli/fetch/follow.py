"""`fetch-and-install --follow`: installs what sources have new."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from mx_artifact_cli.fetch.install_report import nothing_usable_error
from mx_artifact_cli.fetch.report import show_fetched
from mx_artifact_cli.output import Output
from mx_artifacts.errors import MxArtifactsError

if TYPE_CHECKING:
    from mx_artifact_cli.selection import SelectedKind
    from mx_artifact_cli.signals import StopRequest
    from mx_artifacts.artifacts.target.fetch_values import FetchResult
    from mx_artifacts.artifacts.target.suitability import SourceWanted
    from mx_artifacts.fetcher import ArtifactFetcher
    from mx_artifacts.identity.identify import ProbedIdentity


@dataclass
class FollowedSources:
    """The sources of a kind, and which of their artifacts were installed."""

    selected: SelectedKind
    probed: ProbedIdentity
    wanted: SourceWanted
    installed_ids: set[str] = field(default_factory=set)
    told_failure: type[MxArtifactsError] | None = None

    def has_installed(self, fetched: FetchResult) -> None:
        """Take no source's offer of this artifact any more."""
        self.installed_ids.add(fetched.source.artifact_id)


class FetchFollower:
    """Goes forward only: what was installed once is not installed again.

    So sources that serve different artifacts, each installed once, do not take turns. The time
    of a record does not tell which artifact is newer, since heartbeats move it.
    """

    def __init__(self, output: Output, fetcher: ArtifactFetcher, *, replace: bool) -> None:
        self._output = output
        self._fetcher = fetcher
        self._replace = replace
        self._followed: list[FollowedSources] = []

    def add(
        self, selected: SelectedKind, probed: ProbedIdentity, wanted: SourceWanted
    ) -> FollowedSources:
        """Follow the sources of a kind; tell what is returned of what is installed otherwise."""
        followed = FollowedSources(selected, probed, replace(wanted, wait_seconds=0.0))
        self._followed.append(followed)
        return followed

    def run(self, stop: StopRequest, interval_seconds: float) -> None:
        """Look for something new every `interval_seconds`, until the request to stop."""
        while not stop.wait(interval_seconds):
            for each in self._followed:
                stop.run(partial(self._look_after, each))

    def _look_after(self, followed: FollowedSources) -> None:
        try:
            fetched = self._fetch_newest(followed)
        except MxArtifactsError as error:
            self._tell_failure(followed, error)
            return
        followed.told_failure = None
        if fetched is None:
            return
        show_fetched(self._output, followed.probed, fetched)
        if fetched.report.nothing_usable:
            self._output.error(nothing_usable_error(fetched.kind, fetched.report))

    def _fetch_newest(self, followed: FollowedSources) -> FetchResult | None:
        selected, identity = followed.selected, followed.probed.identity
        newest = self._fetcher.newest_besides(
            followed.installed_ids,
            selected.kind,
            identity,
            selected.stated_roots,
            wanted=followed.wanted,
        )
        if newest is None:
            return None
        fetched = self._fetcher.fetch_and_install(
            selected.kind,
            identity,
            selected.stated_roots,
            wanted=replace(followed.wanted, artifact_id=newest.artifact_id),
            replace=self._replace,
        )
        followed.has_installed(fetched)
        return fetched

    def _tell_failure(self, followed: FollowedSources, error: MxArtifactsError) -> None:
        if followed.told_failure is type(error):
            return
        followed.told_failure = type(error)
        name = followed.selected.kind.name
        self._output.warn(f"{name}: a look for something new failed, and goes on: {error}")
        self._output.record("follow_failed", {"kind": name, "error": error})
