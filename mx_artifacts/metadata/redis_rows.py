"""Rows of a listing, read from the indexes in Redis.

The whole record is read only for workers that an older server published, whose index entry is not a
summary.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TypeVar, cast

from mx_artifacts.core.identity import SourceIdentity
from mx_artifacts.core.sources import SourceQuery, WorkerRecord
from mx_artifacts.metadata import records
from mx_artifacts.metadata.listing import source_may_pass
from mx_artifacts.metadata.redis_connection import Hash, RedisConnection
from mx_artifacts.metadata.summary import SummaryRow, summary_of

logger = logging.getLogger(__name__)

BATCH_SIZE = 128
"""Maximum number of hashes in one pipeline. It bounds memory, since a record of weights may hold
thousands of tensors."""
ROWS_AT_ONCE = 500
"""Maximum number of rows that are parsed before other calls get their turn on the event loop: about
5 ms."""

_INDEX_PATTERN = records.index_key("?" * 16)
_INDEX_KEY = re.compile(records.index_key("([0-9a-f]{16})").encode())
_ATTRIBUTES = records.ATTRIBUTES.encode()

_Entry = tuple[str, SourceIdentity, bytes, bytes]
"""Source id, its identity, worker id, and the worker's entry in the index."""
T = TypeVar("T")


class RowReader:
    """Reads rows in batches, so that other calls get their turn on the event loop."""

    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection

    async def rows(self, query: SourceQuery) -> AsyncIterator[list[SummaryRow]]:
        """Iterate over the rows of all sources that may pass, some at a time."""
        for source_ids in _batches(await self._source_ids(query), BATCH_SIZE):
            indexes = await self._connection.hashes(list(map(records.index_key, source_ids)))
            entries = [
                entry
                for source_id, index in zip(source_ids, indexes, strict=True)
                for entry in _entries(source_id, index)
            ]
            unsummarised: list[_Entry] = []
            for some in _batches(entries, ROWS_AT_ONCE):
                yield [row for entry in some if (row := _row(entry, unsummarised))]
                await asyncio.sleep(0)
            for some in _batches(unsummarised, BATCH_SIZE):
                yield await self._rows_of_records(some)

    async def _source_ids(self, query: SourceQuery) -> Sequence[str]:
        """Return the sources whose rows may pass."""
        if query.mx_source_id is not None:
            return [query.mx_source_id]
        source_ids = await self._scanned()
        if query.model_name is None and query.min_training_step is None:
            return source_ids
        passing = []
        for batch in _batches(source_ids, BATCH_SIZE):
            keys = list(map(records.index_key, batch))
            indexes = await self._connection.hashes(keys, records.ATTRIBUTES)
            for source_id, index in zip(batch, indexes, strict=True):
                identity = identity_from(source_id, index)
                if identity is not None and source_may_pass(query, identity):
                    passing.append(source_id)
        return passing

    async def _scanned(self) -> Sequence[str]:
        """Find all sources by SCAN, which may name one twice."""
        found: set[str] = set()
        cursor = b"0"
        while True:
            [answer] = await self._connection.send(
                [("SCAN", cursor, "MATCH", _INDEX_PATTERN, "COUNT", 1000)]
            )
            cursor, keys = cast("tuple[bytes, list[bytes]]", answer)
            matches = map(_INDEX_KEY.fullmatch, keys)
            found.update(match[1].decode() for match in matches if match)
            if int(cursor) == 0:
                return sorted(found)

    async def _rows_of_records(self, entries: Sequence[_Entry]) -> list[SummaryRow]:
        """Return the rows of workers whose index entry is no summary."""
        keys = [records.worker_key(source, worker.decode()) for source, _, worker, _ in entries]
        rows = []
        for entry, fields in zip(entries, await self._connection.hashes(keys), strict=True):
            source_id, identity, worker, text = entry
            record = record_from(source_id, worker, text, fields)
            if record is not None:
                rows.append(_row_of(source_id, worker, identity, record))
        return rows


def _batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _entries(mx_source_id: str, index: Hash) -> Iterator[_Entry]:
    """Return the entries of an index, none when its identity cannot be read."""
    identity = identity_from(mx_source_id, index)
    if identity is not None:
        for worker, entry in index.items():
            if worker != _ATTRIBUTES:
                yield mx_source_id, identity, worker, entry


def identity_from(mx_source_id: str, index: Hash) -> SourceIdentity | None:
    """Return the identity in an index, or None, with a warning, when it cannot be read."""
    if not index:
        return None
    try:
        attributes = index.get(_ATTRIBUTES)
        if attributes is None:
            raise ValueError(f"{records.ATTRIBUTES} is missing")
        return records.attributes_from_json(attributes)
    except ValueError as error:
        logger.warning("skipped source %s: its identity cannot be read: %s", mx_source_id, error)
        return None


def _row(entry: _Entry, unsummarised: list[_Entry]) -> SummaryRow | None:
    """Return the row that an entry holds; add the entry to `unsummarised` when it holds none."""
    mx_source_id, identity, worker, text = entry
    try:
        worker.decode()
        record = records.record_of_entry(text)
    except ValueError as error:
        _warn(mx_source_id, worker, error)
        return None
    if record is None:
        unsummarised.append(entry)
        return None
    return _row_of(mx_source_id, worker, identity, record)


def _row_of(
    mx_source_id: str, worker: bytes, identity: SourceIdentity, record: WorkerRecord
) -> SummaryRow:
    version = f"{record.worker_rank}:{record.updated_at_ms}:{int(record.status)}"
    return summary_of(mx_source_id, worker.decode(), identity, record, version)


def record_from(
    mx_source_id: str, worker: bytes, entry: bytes, fields: Hash
) -> WorkerRecord | None:
    """Return a record, or None, with a warning when it cannot be read."""
    try:
        return records.stored_record(entry, fields)
    except ValueError as error:
        _warn(mx_source_id, worker, error)
        return None


def _warn(mx_source_id: str, worker: bytes, error: ValueError) -> None:
    logger.warning(
        "skipped worker %r of source %s: its record cannot be read: %s",
        worker,
        mx_source_id,
        error,
    )
