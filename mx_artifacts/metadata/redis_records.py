"""Records in Redis or Valkey, in the layout of deployed ModelExpress servers (records.py).

No record has a TTL: the reaper deletes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from mx_artifacts.core.identity import SourceIdentity
from mx_artifacts.core.sources import (
    PodIdentity,
    SourceQuery,
    SourceStatus,
    StoredWorker,
    WorkerRecord,
)
from mx_artifacts.metadata import records, redis_scripts
from mx_artifacts.metadata.listing import matching, ordered
from mx_artifacts.metadata.redis_connection import Command, RedisConnection, ScriptCall
from mx_artifacts.metadata.redis_rows import RowReader, identity_from, record_from
from mx_artifacts.metadata.summary import SummaryRow


def _keys(mx_source_id: str, worker_id: str) -> tuple[str, str]:
    """Return the keys of a worker's hash and of its source's index."""
    return records.worker_key(mx_source_id, worker_id), records.index_key(mx_source_id)


class RedisRecords:
    """A version is the rank, time and status of the summary; `redis_scripts` compares them."""

    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection
        self._reader = RowReader(connection)

    async def put(
        self,
        mx_source_id: str,
        worker_id: str,
        identity: SourceIdentity,
        record: WorkerRecord,
        pod: PodIdentity,
    ) -> None:
        """Replace the whole record, as one transaction; Redis has no use for the pod."""
        worker_key, index_key = _keys(mx_source_id, worker_id)
        rank, summary = record.worker_rank, records.summary_to_json(record)
        text, attributes = records.record_to_json(record), records.attributes_to_json(identity)
        commands: list[Command] = [
            ("DEL", worker_key),  # the worker may have had another rank
            ("HSET", worker_key, rank, text, records.status_field(rank), summary),
            ("HSET", index_key, records.ATTRIBUTES, attributes, worker_id, summary),
        ]
        await self._connection.send(commands, atomic=True)

    async def get(self, mx_source_id: str, worker_id: str) -> StoredWorker | None:
        """Return a record, or None when there is none or it cannot be read."""
        worker_key, index_key = _keys(mx_source_id, worker_id)
        worker = worker_id.encode()
        [index] = await self._connection.hashes([index_key], records.ATTRIBUTES, worker_id)
        if worker not in index:
            return None
        [fields] = await self._connection.hashes([worker_key])
        identity = identity_from(mx_source_id, index)
        record = record_from(mx_source_id, worker, index[worker], fields)
        if identity is None or record is None:
            return None
        return StoredWorker(mx_source_id, worker_id, identity, record)

    async def list(self, query: SourceQuery) -> list[SummaryRow]:
        """Return the rows that pass."""
        passing: list[SummaryRow] = []
        async for rows in self._reader.rows(query):
            passing += matching(rows, query)
        return ordered(passing, query.limit)

    async def update_status(
        self,
        mx_source_id: str,
        worker_id: str,
        worker_rank: int,
        status: SourceStatus,
        updated_at_ms: int,
        source_load: float | None,
    ) -> bool:
        """Write both summaries in one round trip; False when the worker has to publish again."""
        load = "" if source_load is None else repr(source_load)
        change = (worker_rank, int(status), updated_at_ms, load)
        worker_key, index_key = _keys(mx_source_id, worker_id)
        answers = await self._connection.run(
            ScriptCall(redis_scripts.UPDATE_RECORD, worker_key, change),
            ScriptCall(redis_scripts.UPDATE_INDEX, index_key, (worker_id, *change)),
        )
        return all(answers)

    async def mark_stale(self, mx_source_id: str, worker_id: str, version: str) -> bool:
        """Set STALE if nothing happened to the record meanwhile."""
        worker_key, index_key = _keys(mx_source_id, worker_id)
        rank, updated_at, _ = version.split(":")
        [marked] = await self._connection.run(
            ScriptCall(redis_scripts.MARK_RECORD, worker_key, (rank, updated_at))
        )
        if marked == 0:
            return False
        [listed] = await self._connection.run(
            ScriptCall(redis_scripts.MARK_INDEX, index_key, (worker_id, updated_at))
        )
        return 1 in (marked, listed)

    async def delete(self, mx_source_id: str, worker_id: str, version: str | None = None) -> bool:
        """Remove a record, and its source's index when it was the last.

        The record goes first: should this process end in between, the entry that is left is a row
        that the reaper sees again.
        """
        worker_key, index_key = _keys(mx_source_id, worker_id)
        if version is None:
            updated_at = status = ""
            [removed] = await self._connection.send([("DEL", worker_key)])
        else:
            rank, updated_at, status = version.split(":")
            judged = (rank, updated_at, status)
            [removed] = await self._connection.run(
                ScriptCall(redis_scripts.DELETE_RECORD, worker_key, judged)
            )
            if removed == 0:
                return False
        [unlisted] = await self._connection.run(
            ScriptCall(redis_scripts.DELETE_INDEX, index_key, (worker_id, updated_at, status))
        )
        return 1 in (removed, unlisted)

    async def scan(self) -> AsyncIterator[SummaryRow]:
        """Iterate over all rows."""
        async for rows in self._reader.rows(SourceQuery()):
            for row in rows:
                yield row
