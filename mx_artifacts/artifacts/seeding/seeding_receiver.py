"""A receiver that keeps received spans for others, and passes on those that are missing here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mx_artifacts.artifacts.seeding.seed import Seed
from mx_artifacts.artifacts.target.root_receiver import RootReceiver
from mx_artifacts.bundle.index import BundleMap
from mx_artifacts.bundle.spans import Part, Span, parts_of, span_of_chunk, spans_of
from mx_artifacts.core.manifest import ArtifactManifest

BeginSeed = Callable[[ArtifactManifest, Mapping[int, BundleMap]], Seed | None]


class SeedingReceiver:
    """A `Receiver` of all of an artifact; `inner` gets what it wants of that, if there is one."""

    def __init__(self, inner: RootReceiver | None, begin_seed: BeginSeed) -> None:
        self._inner = inner
        self._begin_seed = begin_seed
        self._seed: Seed | None = None
        self._lacking: set[tuple[int, int]] = set()
        self._covered: dict[Span, tuple[int, int]] = {}

    @property
    def waits(self) -> bool:
        return self._inner is not None and self._inner.waits

    def begin(self, manifest: ArtifactManifest, maps: Mapping[int, BundleMap]) -> Sequence[Span]:
        """Make a place for all; raises as that of `inner`."""
        lacking = self._inner.begin(manifest, maps) if self._inner is not None else ()
        self._seed = self._begin_seed(manifest, maps)
        if self._seed is None:
            return lacking
        self._lacking = {key for span in lacking for key in _keys(span)}
        if not maps:
            spans = [span_of_chunk(chunk) for chunk in manifest.chunks]
            self._covered = {span: (span.offset, span.end) for span in spans}
        for index, bundle_map in maps.items():
            parts = (part for member in bundle_map.members for part in parts_of(member))
            of_bundle = list(spans_of(index, parts, bundle_map.length))
            starts = [0, *(span.offset for span in of_bundle[1:])]
            ends = [*starts[1:], bundle_map.length]
            self._covered |= dict(zip(of_bundle, zip(starts, ends, strict=True), strict=True))
        return list(self._covered)

    def write(self, span: Span, data: memoryview) -> None:
        if self._seed is None:
            assert self._inner is not None
            self._inner.write(span, data)
            return
        self._seed.took(span, data, self._covered[span])
        if self._inner is not None:
            wanted = [part for part in span.parts if _key(span, part) in self._lacking]
            if wanted or (span.chunk is not None and _keys(span)[0] in self._lacking):
                self._inner.write(span.with_parts(wanted), data)

    def stop(self) -> None:
        if self._inner is not None:
            self._inner.stop()

    def finish(self) -> None:
        if self._inner is not None:
            self._inner.finish()
        if self._seed is not None:
            self._seed.complete()


def _key(span: Span, part: Part) -> tuple[int, int]:
    return span.file_index, part.offset


def _keys(span: Span) -> list[tuple[int, int]]:
    if span.chunk is not None:
        return [(span.file_index, span.offset)]
    return [_key(span, part) for part in span.parts]
