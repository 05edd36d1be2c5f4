"""`publish --follow`: seals kinds again when their roots have changed and settled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from mx_artifact_cli.publish.publishing import Publishing, warn_of_uneven
from mx_artifact_cli.selection import SelectedKind, looked_at
from mx_artifact_cli.text import count_of, format_bytes, format_seconds
from mx_artifacts.artifacts.source.watch import RootsWatch
from mx_artifacts.errors import BundleError, MxArtifactsError
from mx_artifacts.node.environment import environment

if TYPE_CHECKING:
    from mx_artifact_cli.signals import StopRequest
    from mx_artifacts.publisher import PublishResult


@dataclass
class _Followed:
    """A kind, what is served of it, and what was said already since it was sealed last."""

    selected: SelectedKind
    watch: RootsWatch
    published: PublishResult | None = None
    told_failure: type[MxArtifactsError] | None = None
    told_unsettled: bool = False

    @property
    def name(self) -> str:
        return self.selected.kind.name


class PublishFollower:
    """Publishes kinds, when they are there, and again when they have changed.

    Times are in seconds: between two looks at the roots; for which they must not have changed
    before they are sealed; and after which it is said that they do not settle.
    """

    def __init__(
        self,
        publishing: Publishing,
        *,
        interval_seconds: float,
        settle_seconds: float,
        patience_seconds: float,
    ) -> None:
        self._publishing = publishing
        self._output = publishing.output
        self._interval_seconds = interval_seconds
        self._settle_seconds = settle_seconds
        self._patience_seconds = patience_seconds
        self._followed: list[_Followed] = []

    @property
    def waited_for(self) -> list[str]:
        """The names of the kinds that are not served yet."""
        return [each.name for each in self._followed if each.published is None]

    def add(self, selected: SelectedKind) -> dict[str, Any] | None:
        """Follow a kind; publish it at once if it can be, and return its description then.

        Raises:
            MxArtifactsError: what later changes of the roots will not help against.
        """
        kind = selected.kind
        roots = [(root, kind.pack) for root in selected.roots(environment()).values()]
        watch = RootsWatch(roots, settle_seconds=self._settle_seconds)
        followed = _Followed(selected, watch)
        described = None
        if not watch.holds_files:
            self._output.note(f"{kind.name}: waiting for files in {looked_at(selected)}")
        elif self._settle_seconds:
            self._output.note(f"{kind.name}: waiting until it does not change any more")
            watch.sealed(settled=False)
        else:
            try:
                described = self._publish(followed)
            except BundleError as error:
                self._tell_failure(followed, error)
        self._followed.append(followed)
        return described

    def run(self, stop: StopRequest) -> None:
        """Look after all kinds until the request to stop."""
        while not stop.wait(self._interval_seconds):
            for each in self._followed:
                stop.run(partial(self._look_after, each))

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

    def _publish(self, followed: _Followed) -> dict[str, Any]:
        followed.published, described = self._publishing.publish(followed.selected)
        self._sealed(followed)
        if any(root.report.skipped for root in followed.published.roots):
            followed.watch.sealed(settled=False)
        return described

    def _publish_again(self, followed: _Followed, before: PublishResult) -> None:
        now = followed.published = self._publishing.publisher.republish(before)
        self._sealed(followed)
        if now is not before:
            self._show_change(before, now)

    def _sealed(self, followed: _Followed) -> None:
        followed.watch.sealed()
        followed.told_failure, followed.told_unsettled = None, False

    def _show_change(self, before: PublishResult, now: PublishResult) -> None:
        size = f"{format_bytes(before.total_bytes)} -> {format_bytes(now.total_bytes)}"
        self._output.line(
            f"{now.kind}: published again: {before.file_count} -> "
            f"{count_of(now.file_count, 'file')}, {size}, "
            f"artifact {before.artifact_id} -> {now.artifact_id}"
        )
        warn_of_uneven(self._output, now)
        self._output.record("republished", {**_described(now), "before": _described(before)})

    def _tell_failure(self, followed: _Followed, error: MxArtifactsError) -> None:
        """Say it once, and settle when it is tried again: where that may help without a change."""
        followed.watch.sealed(settled=not error.retryable)
        if followed.told_failure is type(error):
            return
        followed.told_failure = type(error)
        served = "; what was sealed before is served on" if followed.published else ""
        self._output.warn(f"{followed.name}: could not be published: {error}{served}")
        self._output.record("publish_failed", {"kind": followed.name, "error": error})

    def _tell_unsettled(self, followed: _Followed) -> None:
        seconds = followed.watch.unsealed_seconds
        if followed.told_unsettled or seconds < self._patience_seconds:
            return
        followed.told_unsettled = True
        then = "what was sealed before is served" if followed.published else "it is not published"
        self._output.warn(
            f"{followed.name}: its files have changed for {format_seconds(seconds)} and not "
            f"settled; {then} until they do"
        )


def _described(published: PublishResult) -> Mapping[str, Any]:
    return {
        "kind": published.kind,
        "mx_source_id": published.mx_source_id,
        "worker_id": published.worker_id,
        "artifact_id": published.artifact_id,
        "total_bytes": published.total_bytes,
        "files": published.file_count,
    }
