"""Where a source's chunks lie in registered memory while targets read them.

Two ways to serve (docs/architecture): resident keeps the whole artifact in one region and leases
ranges of it without a copy; slots fill one of a few chunk-sized buffers for every lease.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from mx_artifacts.core.manifest import ArtifactManifest, ManifestChunk
from mx_artifacts.memory.buffers import allocate
from mx_artifacts.memory.pool import BufferPool
from mx_artifacts.transport.base import RemoteRange, Transport
from mx_artifacts.worker.bundle_files import BundleFiles
from mx_artifacts.worker.lifetime import Lifetime


class ChunkSource(Protocol):
    """Makes chunks of one artifact readable. All methods may be called from any thread."""

    @property
    def descriptor(self) -> bytes:
        """The agent descriptor with which a peer can read every range this source leases."""
        ...

    @property
    def resident_bytes(self) -> int:
        """How much of the worker's budget for resident artifacts it uses."""
        ...

    def lease(
        self, chunk: ManifestChunk, timeout_seconds: float
    ) -> tuple[RemoteRange, Callable[[], None]]:
        """Return where the verified bytes of `chunk` lie, and what gives them back (once).

        Raises:
            NoFreeSlotError: no memory came free in time.
            ChunkChecksumError, BundleError: the bundle is not what was sealed, or unreadable.
            LeaseError: closed.
        """
        ...

    def close(self) -> None:
        """Lease no more, and free everything once the last lease was given back. Idempotent."""
        ...


class ResidentChunkSource:
    """The whole artifact, read and verified once, in one registered region."""

    def __init__(
        self, transport: Transport, manifest: ArtifactManifest, files: Mapping[str, Path]
    ) -> None:
        """Load everything; an artifact of empty files alone needs no memory.

        Raises:
            RegistrationError, ChunkChecksumError, BundleError, ConfigurationError
        """
        self.resident_bytes = manifest.total_size
        self._offsets: list[int] = []
        total = 0
        for file in manifest.files:
            self._offsets.append(total)
            total += file.size
        self._buffer = allocate(total) if total else None
        try:
            self._load(manifest, files)
            self._region = transport.register(self._buffer.view) if self._buffer else None
        except BaseException:
            if self._buffer:
                self._buffer.close()
            raise
        self.descriptor = transport.descriptor()
        self._lifetime = Lifetime(self._free)

    def _load(self, manifest: ArtifactManifest, files: Mapping[str, Path]) -> None:
        bundles = BundleFiles(manifest, files)
        try:
            for chunk in manifest.chunks:
                start = self._offsets[chunk.file_index] + chunk.file_offset
                assert self._buffer is not None  # a chunk is never empty
                bundles.read_into(chunk, self._buffer.view[start : start + chunk.length])
        finally:
            bundles.close()

    def lease(
        self, chunk: ManifestChunk, timeout_seconds: float
    ) -> tuple[RemoteRange, Callable[[], None]]:
        self._lifetime.enter()
        assert self._region is not None
        start = self._region.addr + self._offsets[chunk.file_index] + chunk.file_offset
        return RemoteRange(start, chunk.length), self._lifetime.leave

    def close(self) -> None:
        self._lifetime.close()

    def _free(self) -> None:
        if self._region is not None:
            self._region.close()
        if self._buffer is not None:
            self._buffer.close()


class SlotChunkSource:
    """A few chunk-sized registered buffers, filled from the bundle for every lease."""

    resident_bytes = 0

    def __init__(
        self,
        transport: Transport,
        manifest: ArtifactManifest,
        files: Mapping[str, Path],
        slots: int,
    ) -> None:
        """Register `slots` buffers (fewer where there are fewer chunks).

        Raises:
            RegistrationError, BundleError, ConfigurationError
        """
        self._bundles = BundleFiles(manifest, files)
        try:
            largest = max(chunk.length for chunk in manifest.chunks)
            self._pool = BufferPool(transport, min(slots, len(manifest.chunks)), largest)
        except BaseException:
            self._bundles.close()
            raise
        self.descriptor = transport.descriptor()
        self._lifetime = Lifetime(self._bundles.close)

    def lease(
        self, chunk: ManifestChunk, timeout_seconds: float
    ) -> tuple[RemoteRange, Callable[[], None]]:
        self._lifetime.enter()
        try:
            buffer = self._pool.acquire(timeout_seconds)
            try:
                self._bundles.read_into(chunk, buffer.view[: chunk.length])
            except BaseException:
                self._pool.release(buffer)
                raise
        except BaseException:
            self._lifetime.leave()
            raise

        def give_back() -> None:
            self._pool.release(buffer)
            self._lifetime.leave()

        return RemoteRange(buffer.region.addr, chunk.length), give_back

    def close(self) -> None:
        self._lifetime.close()
        self._pool.close()


def open_chunk_source(
    transport: Transport,
    manifest: ArtifactManifest,
    files: Mapping[str, Path],
    *,
    resident_limit_bytes: int,
    slots: int,
) -> ChunkSource:
    """Serve resident up to `resident_limit_bytes`, else from `slots` buffers.

    Raises:
        RegistrationError, ChunkChecksumError, BundleError, ConfigurationError
    """
    if not manifest.chunks or manifest.total_size <= resident_limit_bytes:
        return ResidentChunkSource(transport, manifest, files)
    return SlotChunkSource(transport, manifest, files, slots)
