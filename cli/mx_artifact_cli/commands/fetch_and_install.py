"""`mx-artifact fetch-and-install`: fetches caches from a warm node and installs them here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from mx_artifact_cli.fetch.install_report import nothing_usable_error
from mx_artifact_cli.fetch.opened_fetcher import opened_fetcher
from mx_artifact_cli.fetch.options import FetchOptions
from mx_artifact_cli.fetch.report import show_fetched, show_plan
from mx_artifact_cli.option_fields import takes
from mx_artifact_cli.options import Verb
from mx_artifact_cli.outcomes import KindsFailedError
from mx_artifact_cli.output import Output, error_object
from mx_artifact_cli.signals import StopRequest, stop_request
from mx_artifacts.errors import MxArtifactsError, NoSourceError

if TYPE_CHECKING:
    from mx_artifacts.fetcher import ArtifactFetcher
    from mx_artifacts.observability.events import EventSink
    from mx_artifacts.workflows.fetch_kinds import FetchedKind, FetchKindsRequest
    from mx_artifacts.workflows.kind_outcomes import KindOutcomes


@click.command("fetch-and-install", cls=Verb)
@takes(FetchOptions)
@click.pass_obj
def command(output: Output, options: FetchOptions) -> None:
    """Fetch caches from a warm node and install them here.

    It finds a source that has the same identity as this node, transfers its cache, verifies it and
    installs it. A reader of the cache sees the old state or the new state, never a mixture.
    Existing entries are kept, unless you use --replace; an entry that a crash left incomplete is
    replaced, if that can be detected. If the engine will not use a kept entry, the command names
    the entry and the reason. The exit code is 3 if only some of several kinds fail, or if the
    engine will use nothing of a fetched cache.

    With --group, a kind is installed on all nodes of the group or on none. All nodes end with the
    same code: 0, 17, or 18 if a node cannot know what the others did.

    With --follow, it continues after the first install, until SIGINT, SIGTERM or SIGHUP; then the
    exit code is 0. It installs each new artifact of the ready sources once, beginning with the
    source that has the latest heartbeat. Existing entries are kept, unless you use --replace. If
    something fails, it tries again.

    With --seed, it also continues, and serves from memory what it fetched
    (MX_ARTIFACT_RESIDENT_BUDGET). Targets that start together with --seed read from each other.
    """
    options.check()
    selected = options.selected()
    from mx_artifact_cli.progress import progress

    with progress(output) as events, opened_fetcher(options, selected, events) as fetcher:
        run = _Run(output, options, fetcher, options.request(selected), events)
        if options.dry_run:
            run.plan()
        else:
            run.fetch()


@dataclass(frozen=True)
class _Run:
    """One run of the verb."""

    output: Output
    options: FetchOptions
    fetcher: ArtifactFetcher
    request: FetchKindsRequest
    events: EventSink

    def plan(self) -> None:
        from mx_artifacts.workflows.fetch_kinds import PlannedKind, plan_kinds

        shown: list[Mapping[str, Any]] = []

        def show(each: PlannedKind) -> None:
            shown.append(show_plan(self.output, each, replace=self.options.replace))

        planned = plan_kinds(self.fetcher, self.request, on_planned=show, events=self.events)
        if shown:
            self.output.result({"planned": shown, "failed": _error_objects(planned.failed)})
        self._end(planned.failed, shown)

    def fetch(self) -> None:
        from mx_artifacts.workflows.fetch_kinds import fetch_kinds

        shown: list[Mapping[str, Any]] = []

        def show(each: FetchedKind) -> None:
            shown.append(show_fetched(self.output, each))

        fetched = fetch_kinds(self.fetcher, self.request, on_fetched=show, events=self.events)
        failures = {**fetched.failed, **_nothing_usable(fetched)}
        result = {"installed": shown, "failed": _error_objects(failures)}
        follows, seeds = self.options.follow, self.options.seed and self.fetcher.is_seeding
        if shown and (follows or seeds):
            with stop_request() as stop:
                self.output.result(result)
                stays = " and ".join(["following"] * follows + ["seeding"] * seeds)
                self.output.note(f"{stays} until SIGINT, SIGTERM or SIGHUP")
                if follows:
                    self._follow(fetched, stop)
                while not stop.wait():
                    pass
            return
        if shown:
            self.output.result(result)
        self._end(failures, shown)

    def _follow(self, fetched: KindOutcomes[FetchedKind], stop: StopRequest) -> None:
        from mx_artifacts.workflows.follow_sources import SourcesFollower

        def show(each: FetchedKind) -> None:
            show_fetched(self.output, each)
            if each.result.report.nothing_usable:
                self.output.error(nothing_usable_error(each.selected.name, each.result.report))

        SourcesFollower(
            self.fetcher,
            self.request,
            fetched,
            self.options.follow_settings(),
            on_fetched=show,
            events=self.events,
        ).run(stop)

    def _end(
        self, failures: Mapping[str, MxArtifactsError], shown: Sequence[Mapping[str, Any]]
    ) -> None:
        """Raise the error that decides the exit code, if there was no source or a kind failed."""
        options, total = self.options, len(self.request.selected)
        if not shown and not failures:
            raise NoSourceError(
                f"no cache kind has a source for model {options.model!r} at {options.server}"
            )
        if failures and total == 1:
            raise next(iter(failures.values()))
        if failures:
            raise KindsFailedError(failures, total=total)


def _nothing_usable(fetched: KindOutcomes[FetchedKind]) -> dict[str, MxArtifactsError]:
    reports = {name: each.result.report for name, each in fetched.done.items()}
    return {
        name: nothing_usable_error(name, report)
        for name, report in reports.items()
        if report.nothing_usable
    }


def _error_objects(failures: Mapping[str, MxArtifactsError]) -> dict[str, Any]:
    return {kind: error_object(error) for kind, error in failures.items()}
