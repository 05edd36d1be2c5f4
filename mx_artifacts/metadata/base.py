"""Where the central server keeps records: the backend's plug-in surface.

Asynchronous, since only the central server uses it (docs/adr/0008). Every implementation runs
tests/contract/test_metadata.py. A backend that cannot answer raises BackendUnavailableError from
every method and never pretends to be empty.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from mx_artifacts.core.identity import SourceIdentity
from mx_artifacts.core.sources import (
    PodIdentity,
    SourceQuery,
    SourceRef,
    SourceStatus,
    StoredWorker,
    WorkerRecord,
)


@dataclass(frozen=True)
class BackendProperties:
    """Facts about a backend that the server may act upon."""

    name: str
    survives_restart: bool
    """Whether records outlive the server process."""
    shared: bool
    """Whether several servers may use the same records at once."""


class MetadataBackend(Protocol):
    """Records keyed by (mx_source_id, worker_id), one worker_rank each; ballots keyed by group.

    A record that cannot be read (damaged, unknown form) is skipped with a warning in listings.
    Listings are ordered by `newest_first` (core/sources.py), then cut by the query's limit.
    """

    @property
    def properties(self) -> BackendProperties:
        """Facts about this backend."""
        ...

    async def start(self) -> None:
        """Connect. Called once before any other method.

        After BackendUnavailableError the backend is used all the same: every method works as soon
        as there is something to connect to.

        Raises:
            BackendUnavailableError, ConfigurationError
        """
        ...

    async def close(self) -> None:
        """Free all resources. Idempotent."""
        ...

    async def ping(self) -> None:
        """Return when the backend answers; raise BackendUnavailableError when it does not."""
        ...

    async def put(
        self,
        mx_source_id: str,
        worker_id: str,
        identity: SourceIdentity,
        record: WorkerRecord,
        pod: PodIdentity,
    ) -> None:
        """Store or replace a whole record."""
        ...

    async def get(self, mx_source_id: str, worker_id: str) -> StoredWorker | None:
        """Return a record, or None when there is none."""
        ...

    async def list(self, query: SourceQuery) -> list[SourceRef]:
        """Return the records that pass every filter of `query`, `limit` at most."""
        ...

    async def update_status(
        self,
        mx_source_id: str,
        worker_id: str,
        worker_rank: int,
        status: SourceStatus,
        updated_at_ms: int,
        source_load: float | None,
    ) -> bool:
        """Change the small mutable part of a record; never rewrites the tables.

        An update older than what is stored changes nothing and still returns True, so that a
        late heartbeat cannot revive a STALE record.

        Returns:
            False when there is no such record (the worker then publishes again).
        """
        ...

    async def mark_stale(
        self, mx_source_id: str, worker_id: str, worker_rank: int, if_updated_at_ms: int
    ) -> bool:
        """Set STALE, only if `updated_at_ms` is still the given one; keeps updated_at_ms.

        Returns:
            Whether the record was changed.
        """
        ...

    async def delete(
        self, mx_source_id: str, worker_id: str, if_updated_at_ms: int | None = None
    ) -> bool:
        """Remove a record, and its source when it was the last.

        Returns:
            Whether a record was removed; False when `if_updated_at_ms` no longer matches.
        """
        ...

    def scan(self) -> AsyncIterator[SourceRef]:
        """Iterate over all records, for the reaper; may miss those changed meanwhile."""
        ...

    async def get_ballots(self, group: str) -> bytes | None:
        """Return what `replace_ballots` last wrote for a group; None when nothing, or too old."""
        ...

    async def replace_ballots(
        self, group: str, expected: bytes | None, ballots: bytes, ttl_seconds: float
    ) -> bool:
        """Write a group's ballots, only if `expected` is still there; for `ttl_seconds`.

        Returns:
            Whether they were written.
        """
        ...
