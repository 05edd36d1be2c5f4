"""A receiver that keeps what arrives in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mx_artifacts.bundle.index import BundleMap
from mx_artifacts.bundle.spans import Span, span_of_chunk
from mx_artifacts.core.manifest import ArtifactManifest
from mx_artifacts.transfer.artifact.fetch import fetch_artifact
from mx_artifacts.transfer.base import SourceAddress
from mx_artifacts.transfer.engine import TransferLimits
from mx_artifacts.transfer.pipeline import MAX_CORRUPT_READS
from mx_artifacts.transfer.timing import DEFAULT_TIMING, TransferTiming
from mx_artifacts.transport.base import Transport
from tests.support.artifacts import SOURCE_ID


class TransferResult:
    """An artifact as it arrived; whole when `finished`."""

    waits = False

    def __init__(self) -> None:
        self.manifest: ArtifactManifest | None = None
        self.finished = False
        self.stopped = False
        self._bundles: list[bytearray] = []

    @property
    def content(self) -> dict[str, bytes]:
        """The bundles by manifest path."""
        assert self.manifest is not None
        paths = [file.path for file in self.manifest.files]
        return dict(zip(paths, map(bytes, self._bundles), strict=True))

    def begin(self, manifest: ArtifactManifest, maps: Mapping[int, BundleMap]) -> Sequence[Span]:
        self.manifest = manifest
        self._bundles = [bytearray(file.size) for file in manifest.files]
        return list(map(span_of_chunk, manifest.chunks))

    def write(self, span: Span, data: memoryview) -> None:
        assert not self.finished
        self._bundles[span.file_index][span.offset : span.end] = data

    def stop(self) -> None:
        self.stopped = True

    def finish(self) -> None:
        self.finished = True


def fetch(
    endpoint: str | Sequence[str],
    artifact_id: str,
    transport: Transport,
    receiver: TransferResult | None = None,
    *,
    timeout_seconds: float = 60,
    max_inflight_chunks: int = 3,
    timing: TransferTiming = DEFAULT_TIMING,
    max_corrupt_reads: int = MAX_CORRUPT_READS,
    **options: Any,
) -> TransferResult:
    """Fetch an artifact of the tests' source, or sources."""
    receiver = receiver or TransferResult()
    endpoints = [endpoint] if isinstance(endpoint, str) else endpoint
    sources = [SourceAddress(each, SOURCE_ID) for each in endpoints]
    limits = TransferLimits(
        timeout_seconds, max_inflight_chunks, timing=timing, max_corrupt_reads=max_corrupt_reads
    )
    fetch_artifact(sources, artifact_id, transport, receiver, limits, **options)
    return receiver
