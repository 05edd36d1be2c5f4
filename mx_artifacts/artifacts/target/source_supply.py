"""Gives a transfer more candidates only when it needs them: each costs the server a call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from mx_artifacts.artifacts.protocol import ArtifactSourceEndpoint
from mx_artifacts.observability.catalogue import SourceFailed, SpanReceived
from mx_artifacts.observability.events import Event, EventSink
from mx_artifacts.transfer.base import SourceAddress
from mx_artifacts.transfer.source_manager import MAX_SOURCES


def address_of(source: ArtifactSourceEndpoint) -> SourceAddress:
    """Return where a transfer finds a source."""
    return SourceAddress(source.worker_grpc_endpoint, source.mx_source_id)


class SourceSupply:
    """Candidates in their order; a transfer takes only as many as it needs.

    At first it gives as many as are read from at once. Then it gives one more for each source that
    failed, and one more for each search during which nothing was received. If the candidates are a
    sequence, they need no further calls and are all given at once.

    Any thread: a transfer looks for further sources in one of its own.
    """

    def __init__(self, candidates: Iterable[ArtifactSourceEndpoint], events: EventSink) -> None:
        """Take no candidate yet. The events of the transfer are passed on to `events`."""
        self._candidates = iter(candidates)
        self._at_once = len(candidates) if isinstance(candidates, Sequence) else MAX_SOURCES
        self._events = events
        self._taking = threading.Lock()
        self._waiting: list[ArtifactSourceEndpoint] = []
        self._handed_over: list[ArtifactSourceEndpoint] = []
        self._counting = threading.Lock()
        self._failed = 0
        self._has_received = True

    def next_sources(self) -> list[ArtifactSourceEndpoint]:
        """Return sources of one artifact that were not handed over yet; none when there are none.

        Raises what taking a candidate raises.
        """
        with self._taking:
            if not self._waiting:
                self._waiting += islice(self._candidates, self._at_once)
            self._handed_over.clear()
            if not self._waiting:
                return []
            return self._hand_over(self._waiting[0].artifact_id)

    def further(
        self, artifact_id: str, find_more: Callable[[], Iterable[SourceAddress]]
    ) -> list[SourceAddress]:
        """Return all sources of an artifact that are known by now, and what `find_more` returns."""
        with self._counting:
            needed = self._failed + (not self._has_received)
            self._failed, self._has_received = 0, False
        with self._taking:
            self._waiting += islice(self._candidates, needed)
            self._hand_over(artifact_id)
            known = [address_of(source) for source in self._handed_over]
        return [*known, *find_more()]

    def watch(self, event: Event) -> None:
        """Pass an event of the transfer on, and note whether sources deliver or fail."""
        with self._counting:
            self._has_received |= isinstance(event, SpanReceived)
            self._failed += isinstance(event, SourceFailed)
        self._events(event)

    def _hand_over(self, artifact_id: str) -> list[ArtifactSourceEndpoint]:
        sources = [each for each in self._waiting if each.artifact_id == artifact_id]
        self._waiting = [each for each in self._waiting if each.artifact_id != artifact_id]
        self._handed_over += sources
        return sources
