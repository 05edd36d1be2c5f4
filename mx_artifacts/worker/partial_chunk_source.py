"""The memory of an artifact that is still being received; the received part can be leased."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from mx_artifacts.core.manifest import ManifestChunk
from mx_artifacts.core.ranges import Ranges
from mx_artifacts.errors import NoFreeSlotError
from mx_artifacts.memory.buffers import Bundle
from mx_artifacts.transport.base import RemoteRange, Transport
from mx_artifacts.worker.chunk_source import ResidentChunkSource


class PartialChunkSource(ResidentChunkSource):
    """Like `ResidentChunkSource`, but chunks that have not arrived are not leased.

    A target that leases the whole artifact must ask what is `available`, and reads nothing else.
    """

    def __init__(self, transport: Transport, bundles: Sequence[Bundle]) -> None:
        super().__init__(transport, bundles)
        self._lock = threading.Lock()
        self._ranges: dict[int, Ranges] | None = {i: Ranges() for i in range(len(bundles))}

    def arrived(self, file_index: int, start: int, end: int) -> None:
        """Called when these bytes of a bundle have arrived and will not change."""
        with self._lock:
            if self._ranges is not None:
                self._ranges[file_index].add(start, end)

    def complete(self) -> None:
        """Called when everything has arrived."""
        with self._lock:
            self._ranges = None

    def available(self) -> Mapping[int, Ranges] | None:
        with self._lock:
            if self._ranges is None:
                return None
            return {index: Ranges(ranges) for index, ranges in self._ranges.items()}

    def lease(
        self, chunk: ManifestChunk, timeout_seconds: float
    ) -> tuple[RemoteRange, Callable[[], None]]:
        # Who is refused asks again later.
        if not self._has(chunk.file_index, chunk.file_offset, chunk.length):
            raise NoFreeSlotError(f"chunk {chunk.chunk_index} has not arrived at this source yet")
        return super().lease(chunk, timeout_seconds)

    @contextmanager
    def block(self, file_index: int, offset: int, length: int) -> Iterator[memoryview]:
        if not self._has(file_index, offset, length):
            raise NoFreeSlotError(
                f"the bytes at offset {offset} have not arrived at this source yet"
            )
        with super().block(file_index, offset, length) as data:
            yield data

    def _has(self, file_index: int, offset: int, length: int) -> bool:
        with self._lock:
            ranges = self._ranges
            return ranges is None or ranges[file_index].has(offset, offset + length)
