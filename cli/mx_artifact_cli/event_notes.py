"""Prints the library's events as lines for humans, except the progress of transfers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mx_artifact_cli.output import Output
from mx_artifact_cli.text import format_seconds
from mx_artifacts.observability import catalogue as events
from mx_artifacts.observability.events import Event


def _unchecked(event: events.IdentityUnchecked) -> str:
    return (
        f"{event.kind}: the identity of the reference does not include {', '.join(event.values)}; "
        "so a cache that differs in one of these values matches, too"
    )


def _ungrouped(event: events.RootUngrouped) -> str:
    return (
        f"{event.kind}/{event.root} will be installed on this node even if it is not installed on "
        "the other nodes. An engine that has it on only some of its nodes can hang for 30 minutes. "
        "Use --group NAME --group-size N on all nodes (--group-size 1 if there is only one)"
    )


def _publish_failed(event: events.PublishFailed) -> str:
    served = "; the last sealed artifact is still served" if event.is_served else ""
    return f"{event.kind}: could not be published: {event.error}{served}"


def _unsettled(event: events.RootsUnsettled) -> str:
    then = "the last sealed artifact is served" if event.is_served else "nothing is published"
    return (
        f"{event.kind}: its files have changed for {format_seconds(event.changing_seconds)} "
        f"without settling; until they settle, {then}"
    )


_NOTES: dict[type[Event], Callable[[Any], str]] = {
    events.KindSkipped: lambda event: f"{event.kind} skipped: {event.error}",
    events.KindFailed: lambda event: f"{event.kind} failed: {event.error}",
    events.EngineAwaited: lambda event: f"waiting for {event.url}",
    events.RootsAwaited: lambda event: (
        f"{event.kind}: waiting for files in {event.root} ({event.decided_by})"
    ),
    events.RootsSettling: lambda event: f"waiting until {', '.join(event.roots)} no longer change",
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
        f"{event.kind}: a check for new artifacts failed and will be repeated: {event.error}"
    ),
    events.SeedFailed: lambda event: (
        f"this node does not serve what it fetches: {event.error}. {event.error.hint()}"
    ),
}


class EventNotes:
    """An EventSink that prints one line for an event; each reason for waiting only once."""

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
