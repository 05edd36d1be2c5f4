"""The artifacts that a worker serves, found by the ids in a request."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from mx_artifacts.core.digest import crc32c, crc32c_hex
from mx_artifacts.core.manifest import ArtifactManifest, ManifestChunk
from mx_artifacts.core.member_index import MemberIndex
from mx_artifacts.errors import ConfigurationError, RecordNotFoundError
from mx_artifacts.wire.extension import EncodedIndexes
from mx_artifacts.worker.chunk_source import ChunkSource


@dataclass(frozen=True)
class ServedArtifact:
    """An artifact and the memory it is read from.

    `indexes` are those of its bundles, by file index: all of them, or none where they are unknown.
    """

    mx_source_id: str
    artifact_id: str
    manifest: ArtifactManifest
    source: ChunkSource
    indexes: Mapping[int, MemberIndex] = field(default_factory=dict, repr=False)

    @cached_property
    def encoded_indexes(self) -> EncodedIndexes:
        """The indexes as they go over the wire."""
        return EncodedIndexes(self.indexes)

    def chunk(self, index: int) -> ManifestChunk:
        """Return a chunk, or raise ConfigurationError (the request is wrong)."""
        if index >= len(self.manifest.chunks):
            raise ConfigurationError(
                f"artifact {self.artifact_id} has {len(self.manifest.chunks)} chunks, so there is "
                f"no chunk {index}"
            )
        return self.manifest.chunks[index]

    def check_range(self, file_index: int, offset: int, length: int, most_bytes: int) -> None:
        """Accept a part of a bundle, or raise ConfigurationError (the request is wrong)."""
        files = self.manifest.files
        size = files[file_index].size if file_index < len(files) else 0
        if not 0 < length <= most_bytes or offset + length > size:
            raise ConfigurationError(
                f"{length} bytes at {offset} of bundle {file_index} cannot be requested: the "
                f"bundle has {size} bytes, and one request is for 1 to {most_bytes} bytes"
            )

    def damage_in(self, file_index: int, offset: int, length: int) -> str:
        """Read the chunks that hold these bytes; return which is not as it was sealed, or "".

        Raises:
            NoFreeSlotError, BundleError, LeaseError: they cannot be read.
        """
        for chunk in self.manifest.chunks:
            end = chunk.file_offset + chunk.length
            if chunk.file_index != file_index or not (
                chunk.file_offset < offset + length and offset < end
            ):
                continue
            with self.source.block(file_index, chunk.file_offset, chunk.length) as data:
                actual = crc32c_hex(crc32c(data))
            if actual != chunk.checksum:
                return f"chunk {chunk.chunk_index}: {actual} for {chunk.checksum}"
        return ""


class Catalogue:
    """Served artifacts by (mx_source_id, artifact_id). Thread-safe.

    One artifact may be served under several source ids, from the same memory.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._served: dict[tuple[str, str], ServedArtifact] = {}
        self._damaged: set[tuple[str, str]] = set()

    def add(self, served: ServedArtifact) -> None:
        """Serve an artifact; ConfigurationError when it is served already."""
        key = (served.mx_source_id, served.artifact_id)
        with self._lock:
            if key in self._served:
                raise ConfigurationError(f"artifact {served.artifact_id} is already served")
            self._served[key] = served
            self._damaged.discard(key)

    def add_alias(self, alias: str, mx_source_id: str, artifact_id: str) -> None:
        """Serve what is served under `mx_source_id` under the source id `alias` too.

        Raises:
            RecordNotFoundError, ConfigurationError: it is not served, or under `alias` already.
        """
        self.add(replace(self.select(mx_source_id, artifact_id), mx_source_id=alias))

    def rename_source(self, mx_source_id: str, new_id: str) -> None:
        """Serve under `new_id`, and under `mx_source_id` no longer, what is served under that."""
        with self._lock:
            for key, served in list(self._served.items()):
                if key[0] == mx_source_id:
                    del self._served[key]
                    renamed = replace(served, mx_source_id=new_id)
                    self._served.setdefault((new_id, served.artifact_id), renamed)

    def remove(self, mx_source_id: str, artifact_id: str) -> ServedArtifact | None:
        """Stop serving an artifact under this id; return it if it has no other id."""
        with self._lock:
            removed = self._served.pop((mx_source_id, artifact_id), None)
            if removed and any(s.source is removed.source for s in self._served.values()):
                return None
            return removed

    def remove_damaged(self, damaged: ServedArtifact) -> None:
        """Stop serving an artifact under all of its source ids, and remember that it is damaged."""
        with self._lock:
            keys = {key for key, served in self._served.items() if served.source is damaged.source}
            self._damaged |= keys
            for key in keys:
                del self._served[key]

    def is_damaged(self, mx_source_id: str, artifact_id: str) -> bool:
        """Return whether the artifact was removed from this id because it is damaged."""
        with self._lock:
            return (mx_source_id, artifact_id) in self._damaged

    def select(self, mx_source_id: str, artifact_id: str) -> ServedArtifact:
        """Return the artifact with these ids; an empty id fits the only one there is.

        Raises:
            RecordNotFoundError: none fits.
            ConfigurationError: several fit.
        """
        with self._lock:
            fitting = [
                served
                for served in self._served.values()
                if mx_source_id in ("", served.mx_source_id)
                and artifact_id in ("", served.artifact_id)
            ]
        if not fitting:
            why = "damaged" if self.is_damaged(mx_source_id, artifact_id) else "not served"
            raise RecordNotFoundError(
                f"artifact {artifact_id or '(any)'} of source {mx_source_id or '(any)'} is {why} "
                "here"
            )
        if len({id(served.source) for served in fitting}) > 1:
            raise ConfigurationError(f"{len(fitting)} artifacts match; state the ids of one")
        return fitting[0]

    def all(self) -> tuple[ServedArtifact, ...]:
        """Return everything that is served, each once, under one of its source ids."""
        with self._lock:
            return tuple({id(served.source): served for served in self._served.values()}.values())
