"""Records in the server's own memory: the default, for a single server process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field, replace
from itertools import chain, count

from mx_artifacts.core.identity import SourceIdentity
from mx_artifacts.core.sources import (
    PodIdentity,
    SourceQuery,
    SourceStatus,
    StoredWorker,
    WorkerRecord,
    supersedes,
)
from mx_artifacts.metadata.listing import matching, ordered
from mx_artifacts.metadata.summary import SummaryRow, summary_of


@dataclass(frozen=True)
class _Published:
    """A record as it was put; what heartbeats change of it is in its row."""

    identity: SourceIdentity
    record: WorkerRecord


@dataclass
class _Source:
    """The workers of one source id, by worker id."""

    rows: dict[str, SummaryRow] = field(default_factory=dict)
    published: dict[str, _Published] = field(default_factory=dict)
    model_names: set[str] = field(default_factory=set)
    """Published spellings of names; a source id does not distinguish upper and lower case."""


class MemoryRecords:
    """Dictionaries, by source and by model. No method awaits anything, so each is atomic.

    A version is the number of the change that made it.
    """

    def __init__(self) -> None:
        self._sources: dict[str, _Source] = {}
        self._sources_of_model: dict[str, set[str]] = {}
        self._changes = count(1)

    async def put(
        self,
        mx_source_id: str,
        worker_id: str,
        identity: SourceIdentity,
        record: WorkerRecord,
        pod: PodIdentity,
    ) -> None:
        """Store or replace a whole record; the pod is ignored."""
        row = summary_of(mx_source_id, worker_id, identity, record, self._next_version())
        source = self._sources.setdefault(mx_source_id, _Source())
        source.rows[worker_id] = row
        source.published[worker_id] = _Published(identity, record)
        source.model_names.add(identity.model_name)
        self._sources_of_model.setdefault(identity.model_name, set()).add(mx_source_id)

    async def get(self, mx_source_id: str, worker_id: str) -> StoredWorker | None:
        """Return a record, or None."""
        row = self._row(mx_source_id, worker_id)
        if row is None:
            return None
        published = self._sources[mx_source_id].published[worker_id]
        record = replace(
            published.record,
            status=row.status,
            updated_at_ms=row.updated_at_ms,
            source_load=row.source_load,
        )
        return StoredWorker(mx_source_id, worker_id, published.identity, record)

    async def list(self, query: SourceQuery) -> list[SummaryRow]:
        """Return the rows that pass."""
        return ordered(matching(self._candidates(query), query), query.limit)

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
        row = self._row(mx_source_id, worker_id)
        if row is None or row.worker_rank != worker_rank:
            return False
        if supersedes(status, updated_at_ms, row.status, row.updated_at_ms):
            self._sources[mx_source_id].rows[worker_id] = replace(
                row,
                status=status,
                updated_at_ms=updated_at_ms,
                source_load=source_load,
                version=self._next_version(),
            )
        return True

    async def mark_stale(self, mx_source_id: str, worker_id: str, version: str) -> bool:
        """Set STALE if nothing happened to the record meanwhile."""
        row = self._row(mx_source_id, worker_id)
        if row is None or row.version != version or row.status is SourceStatus.STALE:
            return False
        self._sources[mx_source_id].rows[worker_id] = replace(
            row, status=SourceStatus.STALE, version=self._next_version()
        )
        return True

    async def delete(self, mx_source_id: str, worker_id: str, version: str | None = None) -> bool:
        """Remove a record."""
        row = self._row(mx_source_id, worker_id)
        if row is None or version not in (None, row.version):
            return False
        source = self._sources[mx_source_id]
        del source.rows[worker_id], source.published[worker_id]
        if not source.rows:
            self._forget(mx_source_id)
        return True

    async def scan(self) -> AsyncIterator[SummaryRow]:
        """Iterate over the rows that are there now."""
        for row in tuple(self._candidates(SourceQuery())):
            yield row

    def _row(self, mx_source_id: str, worker_id: str) -> SummaryRow | None:
        source = self._sources.get(mx_source_id)
        return source.rows.get(worker_id) if source else None

    def _next_version(self) -> str:
        return str(next(self._changes))

    def _candidates(self, query: SourceQuery) -> Iterable[SummaryRow]:
        """Return the rows of all sources that may pass, by the narrowest index there is."""
        source_ids: Iterable[str] = self._sources
        if query.mx_source_id is not None:
            source_ids = {query.mx_source_id} & self._sources.keys()
        elif query.model_name is not None:
            source_ids = self._sources_of_model.get(query.model_name, ())
        return chain.from_iterable(self._sources[each].rows.values() for each in source_ids)

    def _forget(self, mx_source_id: str) -> None:
        """Drop a source that has no workers left."""
        for model_name in self._sources.pop(mx_source_id).model_names:
            sources = self._sources_of_model[model_name]
            sources.discard(mx_source_id)
            if not sources:
                del self._sources_of_model[model_name]
