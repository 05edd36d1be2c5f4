"""Records in the server's own memory: the default, for one server and no other process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from mx_artifacts.core.identity import SourceIdentity
from mx_artifacts.core.sources import (
    PodIdentity,
    SourceQuery,
    SourceRef,
    SourceStatus,
    StoredWorker,
    WorkerRecord,
    supersedes,
)
from mx_artifacts.metadata.base import BackendProperties
from mx_artifacts.metadata.listing import ref_of, select
from mx_artifacts.runtime.clock import SYSTEM_CLOCK, Clock


class MemoryBackend:
    """A dictionary. No method awaits anything, so each is atomic on its event loop."""

    properties = BackendProperties(name="memory", survives_restart=False, shared=False)

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._workers: dict[tuple[str, str], StoredWorker] = {}
        self._ballots: dict[str, tuple[bytes, float]] = {}

    async def start(self) -> None:
        """Do nothing; there is nobody to connect to."""

    async def close(self) -> None:
        """Forget everything."""
        self._workers.clear()
        self._ballots.clear()

    async def ping(self) -> None:
        """Return at once."""

    async def put(
        self,
        mx_source_id: str,
        worker_id: str,
        identity: SourceIdentity,
        record: WorkerRecord,
        pod: PodIdentity,
    ) -> None:
        """Store or replace a whole record; the pod is of no use here."""
        self._workers[mx_source_id, worker_id] = StoredWorker(
            mx_source_id, worker_id, identity, record
        )

    async def get(self, mx_source_id: str, worker_id: str) -> StoredWorker | None:
        """Return a record, or None."""
        return self._workers.get((mx_source_id, worker_id))

    async def list(self, query: SourceQuery) -> list[SourceRef]:
        """Return the records that pass."""
        return select(map(ref_of, self._workers.values()), query)

    async def update_status(
        self,
        mx_source_id: str,
        worker_id: str,
        worker_rank: int,
        status: SourceStatus,
        updated_at_ms: int,
        source_load: float | None,
    ) -> bool:
        """Change the small mutable part; False when there is no such record."""
        stored = self._workers.get((mx_source_id, worker_id))
        if stored is None or stored.record.worker_rank != worker_rank:
            return False
        record = stored.record
        if supersedes(status, updated_at_ms, record.status, record.updated_at_ms):
            self._keep(
                stored,
                replace(
                    record, status=status, updated_at_ms=updated_at_ms, source_load=source_load
                ),
            )
        return True

    async def mark_stale(
        self, mx_source_id: str, worker_id: str, worker_rank: int, if_updated_at_ms: int
    ) -> bool:
        """Set STALE if nothing happened to the record meanwhile."""
        stored = self._workers.get((mx_source_id, worker_id))
        if (
            stored is None
            or stored.record.worker_rank != worker_rank
            or stored.record.updated_at_ms != if_updated_at_ms
            or stored.record.status is SourceStatus.STALE
        ):
            return False
        self._keep(stored, replace(stored.record, status=SourceStatus.STALE))
        return True

    async def delete(
        self, mx_source_id: str, worker_id: str, if_updated_at_ms: int | None = None
    ) -> bool:
        """Remove a record."""
        stored = self._workers.get((mx_source_id, worker_id))
        if stored is None or if_updated_at_ms not in (None, stored.record.updated_at_ms):
            return False
        del self._workers[mx_source_id, worker_id]
        return True

    async def scan(self) -> AsyncIterator[SourceRef]:
        """Iterate over the records that are there now."""
        for stored in tuple(self._workers.values()):
            yield ref_of(stored)

    async def get_ballots(self, group: str) -> bytes | None:
        """Return a group's ballots, unless they are too old."""
        ballots, until = self._ballots.get(group, (None, 0.0))
        return ballots if self._clock.monotonic() < until else None

    async def replace_ballots(
        self, group: str, expected: bytes | None, ballots: bytes, ttl_seconds: float
    ) -> bool:
        """Write a group's ballots if nobody else did meanwhile; forget those that are too old."""
        now = self._clock.monotonic()
        self._ballots = {name: kept for name, kept in self._ballots.items() if now < kept[1]}
        if self._ballots.get(group, (None, 0.0))[0] != expected:
            return False
        self._ballots[group] = (ballots, now + ttl_seconds)
        return True

    def _keep(self, stored: StoredWorker, record: WorkerRecord) -> None:
        self._workers[stored.mx_source_id, stored.worker_id] = replace(stored, record=record)
