"""An artifact that a target serves while it receives it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

from mx_artifacts.artifacts.source.advertisement import Advertisement
from mx_artifacts.bundle.index import BundleMap
from mx_artifacts.bundle.spans import Span
from mx_artifacts.memory.buffers import Bundle
from mx_artifacts.worker.partial_chunk_source import PartialChunkSource

TELL_SECONDS = 2.0
"""How long an install may wait until the central server knows that its seed is complete."""


class Seed:
    """One artifact, served as far as it has come. Any thread."""

    def __init__(
        self, growing: PartialChunkSource, bundles: list[Bundle], maps: Mapping[int, BundleMap]
    ) -> None:
        """Write the headers, which with a map do not come with the spans."""
        self._growing = growing
        self._views = [bundle.view for bundle in bundles]
        self.is_complete = False
        self.advertisement: Advertisement
        self.undo = ExitStack()
        for index, bundle_map in maps.items():
            for start, header in bundle_map.headers():
                self._views[index][start : start + len(header)] = header

    def took(self, span: Span, data: memoryview, covered: tuple[int, int]) -> None:
        """Take what was verified; others may read all that is `covered` (from, up to) from here on.

        That is the span and the headers and zeros around it, so that chunks become whole.
        """
        view = self._views[span.file_index]
        if span.chunk is not None:
            view[span.offset : span.end] = data
        for part in span.parts:
            view[part.offset : part.offset + part.length] = span.content_of(part, data)
        self._growing.arrived(span.file_index, *covered)

    def complete(self) -> None:
        """Called when all has arrived; from now on, peers that cannot read parts may read."""
        self._growing.complete()
        self.is_complete = True
        self.advertisement.report_now(TELL_SECONDS)

    def close(self) -> None:
        """Serve it no more; its memory goes with the last lease. Idempotent."""
        self.undo.close()
