"""What a human is told of the library's events, but for the progress of transfers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mx_artifact_cli.output import Output
from mx_artifact_cli.text import format_seconds
from mx_artifacts.observability import catalogue as events
from mx_artifacts.observability.events import Event


def _unchecked(event: events.IdentityUnchecked) -> str:
    return (
        f"{event.kind}: the reference's identity does not check {', '.join(event.values)}; "
        "a cache that differs in one of these matches all the same"
    )


def _ungrouped(event: events.RootUngrouped) -> str:
    return (
        f"{event.kind}/{event.root} is installed on this node whatever becomes of it on others; "
        "an engine that has it on some of its nodes only can hang for 30 minutes, so give all of "
        "them --group NAME --group-size N (with one node alone: --group-size 1)"
    )


def _publish_failed(event: events.PublishFailed) -> str:
    served = "; what was sealed before is served on" if event.is_served else ""
    return f"{event.kind}: could not be published: {event.error}{served}"


def _unsettled(event: events.RootsUnsettled) -> str:
    then = "what was sealed before is served" if event.is_served else "it is not published"
    return (
        f"{event.kind}: its files have changed for {format_seconds(event.changing_seconds)} and "
        f"not settled; {then} until they do"
    )


_NOTES: dict[type[Event], Callable[[Any], str]] = {
    events.KindSkipped: lambda event: f"{event.kind} skipped: {event.error}",
    events.KindFailed: lambda event: f"{event.kind} failed: {event.error}",
    events.EngineAwaited: lambda event: f"waiting for {event.url}",
    events.RootsAwaited: lambda event: (
        f"{event.kind}: waiting for files in {event.root} ({event.decided_by})"
    ),
    events.RootsSettling: lambda event: (
        f"waiting until nothing changes any more in {', '.join(event.roots)}"
    ),
    events.SealStarted: lambda event: f"sealing {event.kind}",
    events.DiscoveryWaiting: lambda event: f"waiting: {event.error}",
    events.FetchWaiting: lambda event: f"waiting: {event.error}",
    events.GroupWaiting: lambda event: f"waiting: {event.reason}",
}
_WARNINGS: dict[type[Event], Callable[[Any], str]] = {
    events.IdentityUnchecked: _unchecked,
    events.RootUngrouped: _ungrouped,
    events.PublishFailed: _publish_failed,
    events.RootsUnsettled: _unsettled,
    events.FollowFailed: lambda event: (
        f"{event.kind}: a look for something new failed, and goes on: {event.error}"
    ),
    events.SeedFailed: lambda event: (
        f"what is fetched is not served to others: {event.error}. {event.error.hint()}"
    ),
}


class EventNotes:
    """An EventSink that says in a line what happened; of what is waited for, each reason once."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._waited_for: set[str] = set()

    def __call__(self, event: Event) -> None:
        if (warning := _WARNINGS.get(type(event))) is not None:
            self._output.warn(warning(event))
        elif (note := _NOTES.get(type(event))) is not None:
            self._note(note(event))

    def _note(self, text: str) -> None:
        if text.startswith("waiting: "):
            if text in self._waited_for:
                return
            self._waited_for.add(text)
        self._output.note(text)
