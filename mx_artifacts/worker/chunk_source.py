"""The registered memory of a source's chunks while targets read them.

There are two ways to serve (docs/architecture). Resident: the whole artifact is in registered
memory, and ranges of it are leased without a copy. Slots: every lease fills one of a few buffers of
the size of a chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Protocol

from mx_artifacts.core.digest import crc32c, crc32c_hex
from mx_artifacts.core.manifest import ArtifactManifest, ManifestChunk
from mx_artifacts.core.ranges import Ranges
from mx_artifacts.errors import BundleError, ChunkChecksumError, ConfigurationError
from mx_artifacts.memory.buffers import Buffer, Bundle
from mx_artifacts.memory.pool import BufferPool
from mx_artifacts.transport.base import Region, RemoteRange, Transport
from mx_artifacts.worker.ref_counted import RefCounted


class ChunkSource(Protocol):
    """Makes chunks of one artifact readable. All methods may be called from any thread."""

    @property
    def descriptors(self) -> Mapping[str, bytes]:
        """Agent descriptors by transport: with each a peer can read every range that is leased."""
        ...

    def lease_whole(self) -> tuple[Mapping[int, RemoteRange], Callable[[], None]] | None:
        """Return the addresses of the bundles by file index (without empty ones), and a function
        that gives them back (call it once). Return None if not all are in registered memory.

        Raises:
            LeaseError: closed.
        """
        ...

    def available(self) -> Mapping[int, Ranges] | None:
        """Return which bytes can be leased by now, by file index; None: all."""
        ...

    def lease(
        self, chunk: ManifestChunk, timeout_seconds: float
    ) -> tuple[RemoteRange, Callable[[], None]]:
        """Return the address of the verified bytes of `chunk`, and a function that gives them back.

        Raises:
            NoFreeSlotError: no memory became free in time.
            ChunkChecksumError, BundleError: the bundle changed after it was sealed, or is
                unreadable.
            LeaseError: closed.
        """
        ...

    def block(
        self, file_index: int, offset: int, length: int
    ) -> AbstractContextManager[memoryview]:
        """Lend `length` bytes of a bundle without a check: the reader of a file verifies them.

        Raises:
            NoFreeSlotError: they have not arrived yet.
            BundleError: the bundle is unreadable.
            LeaseError: closed.
        """
        ...

    def close(self) -> None:
        """Lease no more, and free everything once the last lease was given back. Idempotent."""
        ...


class ResidentChunkSource:
    """The bundles where they were packed: each in registered memory as a whole."""

    def __init__(self, transport: Transport, bundles: Sequence[Bundle]) -> None:
        """Register `bundles`, by file index. Empty ones need no memory.

        Raises:
            RegistrationError: nothing stays registered.
        """
        self._bundles = tuple(bundles)
        self._views = [bundle.view for bundle in bundles]  # keep the pages, whoever closes them
        self._regions: list[Region | None] = []
        try:
            for view in self._views:
                self._regions.append(transport.register(view) if view else None)
        except BaseException:
            self._deregister()
            raise
        self._transport = transport
        self._lifetime = RefCounted(self._free)

    @cached_property
    def descriptors(self) -> Mapping[str, bytes]:
        return self._transport.descriptors()

    def lease_whole(self) -> tuple[Mapping[int, RemoteRange], Callable[[], None]] | None:
        self._lifetime.enter()
        regions = enumerate(self._regions)
        whole = {i: RemoteRange(r.addr, r.length) for i, r in regions if r is not None}
        return whole, self._lifetime.leave

    def available(self) -> Mapping[int, Ranges] | None:
        return None

    def lease(
        self, chunk: ManifestChunk, timeout_seconds: float
    ) -> tuple[RemoteRange, Callable[[], None]]:
        self._lifetime.enter()
        region = self._regions[chunk.file_index]
        assert region is not None, "a chunk is never empty"
        return RemoteRange(region.addr + chunk.file_offset, chunk.length), self._lifetime.leave

    @contextmanager
    def block(self, file_index: int, offset: int, length: int) -> Iterator[memoryview]:
        self._lifetime.enter()
        try:
            yield self._views[file_index][offset : offset + length]
        finally:
            self._lifetime.leave()

    def close(self) -> None:
        self._lifetime.close()

    def _deregister(self) -> None:
        for region in self._regions:
            if region is not None:
                region.close()

    def _free(self) -> None:
        self._deregister()
        self._views.clear()
        for bundle in self._bundles:
            bundle.close()


class SlotChunkSource:
    """A few chunk-sized registered buffers, filled from the bundle for every lease."""

    def __init__(
        self,
        transport: Transport,
        manifest: ArtifactManifest,
        bundles: Sequence[Bundle],
        slots: int,
    ) -> None:
        """Register `slots` buffers (fewer where there are fewer chunks).

        Raises:
            RegistrationError
        """
        self._bundles = tuple(bundles)
        largest = max(chunk.length for chunk in manifest.chunks)
        self._pool = BufferPool(transport, min(slots, len(manifest.chunks)), largest)
        self._transport = transport
        self._lifetime = RefCounted(self._free)

    @cached_property
    def descriptors(self) -> Mapping[str, bytes]:
        return self._transport.descriptors()

    def lease_whole(self) -> tuple[Mapping[int, RemoteRange], Callable[[], None]] | None:
        return None

    def available(self) -> Mapping[int, Ranges] | None:
        return None

    def lease(
        self, chunk: ManifestChunk, timeout_seconds: float
    ) -> tuple[RemoteRange, Callable[[], None]]:
        self._lifetime.enter()
        try:
            buffer = self._pool.acquire(timeout_seconds)
            try:
                self._fill(chunk, buffer.view[: chunk.length])
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

    @contextmanager
    def block(self, file_index: int, offset: int, length: int) -> Iterator[memoryview]:
        self._lifetime.enter()
        try:
            data = memoryview(bytearray(length))
            self._read(self._bundles[file_index], offset, data)
            yield data
        finally:
            self._lifetime.leave()

    def _read(self, bundle: Bundle, offset: int, target: memoryview) -> None:
        if isinstance(bundle, Buffer):
            target[:] = bundle.view[offset : offset + len(target)]
            return
        try:
            bundle.read_into(offset, target)
        except OSError as error:
            raise BundleError(f"a bundle cannot be read: {error.strerror}") from error

    def _fill(self, chunk: ManifestChunk, target: memoryview) -> None:
        bundle = self._bundles[chunk.file_index]
        self._read(bundle, chunk.file_offset, target)
        if isinstance(bundle, Buffer):
            return
        if crc32c_hex(crc32c(target)) != chunk.checksum:
            raise ChunkChecksumError(
                f"chunk {chunk.chunk_index} is not as it was sealed: the disk of the bundle root "
                "returned other bytes",
                hint="restart the publisher with its bundle root on another disk",
            )

    def close(self) -> None:
        self._lifetime.close()
        self._pool.close()

    def _free(self) -> None:
        for bundle in self._bundles:
            bundle.close()


def open_chunk_source(
    transport: Transport,
    manifest: ArtifactManifest,
    bundles: Mapping[str, Bundle],
    *,
    slots: int,
) -> ChunkSource:
    """Serve from the bundles' own memory if all are in memory, else from `slots` buffers.

    The source closes `bundles` (by manifest path) at its end.

    Raises:
        RegistrationError
        ConfigurationError: a bundle is missing.
    """
    missing = [file.path for file in manifest.files if file.path not in bundles]
    if missing:
        raise ConfigurationError(f"no bundle was given for {missing[0]!r}")
    in_order = [bundles[file.path] for file in manifest.files]
    if all(isinstance(bundle, Buffer) or not bundle.length for bundle in in_order):
        return ResidentChunkSource(transport, in_order)
    return SlotChunkSource(transport, manifest, in_order, slots)
