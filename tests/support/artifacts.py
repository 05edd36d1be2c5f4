"""Small sealed artifacts, and sources that serve them over the in-process transport."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import random
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mx_artifacts.compression import NONE
from mx_artifacts.core.chunks import expected_chunks
from mx_artifacts.core.digest import crc32c, crc32c_hex
from mx_artifacts.core.identity import SourceType
from mx_artifacts.core.manifest import (
    ArtifactHeader,
    ArtifactManifest,
    ArtifactRef,
    ManifestChunk,
    ManifestFile,
)
from mx_artifacts.memory.buffers import Buffer, Bundle, FileBuffer
from mx_artifacts.transport.base import Transport
from mx_artifacts.transport.inproc import InprocTransport
from mx_artifacts.worker.artifact_service import ArtifactService
from mx_artifacts.worker.serving_settings import ServingSettings
from mx_artifacts.worker.worker_server import WorkerServer

SOURCE_ID = "3327fe19f6fa4e35"
CHUNK_SIZE = 4096
_numbers = itertools.count()


@dataclass(frozen=True)
class SealedArtifact:
    """An artifact with its bytes, by manifest path."""

    manifest: ArtifactManifest
    content: Mapping[str, bytes]

    @property
    def artifact_id(self) -> str:
        return self.manifest.artifact_id

    @property
    def ref(self) -> ArtifactRef:
        """How it is asked for at the source that serves it."""
        return ArtifactRef(SOURCE_ID, self.artifact_id)

    def bundles(self, in_files: Path | None = None) -> dict[str, Bundle]:
        """Return what a source serves: in memory, or in unnamed files in a directory."""
        return {path: in_memory_or_file(data, in_files) for path, data in self.content.items()}

    def header(self, **changes: Any) -> ArtifactHeader:
        """Return what an honest source says, with `changes`."""
        manifest = self.manifest
        values: dict[str, Any] = {
            "mx_source_id": SOURCE_ID,
            "artifact_id": self.artifact_id,
            "mx_source_type": manifest.mx_source_type,
            "total_size": manifest.total_size,
            "file_count": len(manifest.files),
            "chunk_count": len(manifest.chunks),
            "chunk_size": manifest.chunk_size,
            "files": manifest.files,
        }
        return ArtifactHeader(**{**values, **changes})


def make_manifest(content: Mapping[str, bytes], chunk_size: int = CHUNK_SIZE) -> ArtifactManifest:
    """Seal `content` (manifest path -> bytes)."""
    paths = sorted(content)
    files = tuple(
        ManifestFile(i, path, len(content[path]), crc32c_hex(crc32c(content[path])))
        for i, path in enumerate(paths)
    )
    chunks = tuple(
        ManifestChunk(
            index,
            file,
            offset,
            length,
            crc32c_hex(crc32c(content[paths[file]][offset : offset + length])),
        )
        for index, file, offset, length in expected_chunks([f.size for f in files], chunk_size)
    )
    return ArtifactManifest(SourceType.TRITON_CACHE, chunk_size, files, chunks)


def in_memory_or_file(content: bytes, directory: Path | None = None) -> Bundle:
    """Return memory, or an unnamed file in `directory`, that holds `content`."""
    length = max(1, len(content))
    bundle = Buffer(length) if directory is None else FileBuffer(directory, length)
    bundle.cut(len(content))
    bundle.view[:] = content
    return bundle


def make_artifact(sizes: Mapping[str, int], chunk_size: int = CHUNK_SIZE) -> SealedArtifact:
    """Seal bundles of random bytes, `sizes` by name."""
    rng = random.Random(repr(sorted(sizes.items())))
    content = {f"/bundle/{name}": rng.randbytes(size) for name, size in sizes.items()}
    return SealedArtifact(make_manifest(content, chunk_size), content)


def new_agent(role: str) -> InprocTransport:
    """Return an in-process transport with a name of its own; close it."""
    return InprocTransport(f"{role}-{next(_numbers)}")


def served_locally(options: Mapping[str, Any]) -> tuple[ServingSettings, dict[str, Any]]:
    """Return how to serve on a free port of the loopback, and the options that are others'."""
    names = {each.name for each in dataclasses.fields(ServingSettings)}
    own = {name: value for name, value in options.items() if name in names}
    ports = {"port": 0, "stream_port": 0}
    values: dict[str, Any] = {"host": "127.0.0.1", **ports, "compression": NONE, **own}
    return ServingSettings(**values), {k: v for k, v in options.items() if k not in names}


class ArtifactServer(WorkerServer):
    """A worker server of artifacts, which are at hand."""

    def __init__(self, agent: Transport, settings: ServingSettings, **options: Any) -> None:
        events = {"events": options.pop("events")} if "events" in options else {}
        self.artifacts = ArtifactService(agent, settings, **options)
        super().__init__(agent, settings, [self.artifacts], **events)


@contextlib.contextmanager
def serving(
    artifact: SealedArtifact,
    *,
    slots: int | None = None,
    bundles: Mapping[str, Bundle] | None = None,
    transport: Transport | None = None,
    **options: Any,
) -> Iterator[ArtifactServer]:
    """Serve `artifact` on a free port, resident, or from `slots`; nothing is left behind.

    `bundles` are its bytes, where they are not made here.
    """
    in_files = Path(tempfile.gettempdir()) if slots else None
    agent = transport or new_agent("source")
    settings, others = served_locally(options)
    server = ArtifactServer(agent, settings, **others)
    try:
        server.artifacts.add_artifact(
            SOURCE_ID,
            artifact.artifact_id,
            artifact.manifest,
            bundles or artifact.bundles(in_files),
            slots=slots or 1,
        )
        server.start()
        yield server
    finally:
        server.stop(grace_seconds=0)
        agent.close()
