"""The stores of the central server's state: the plug-in interface, with two kinds of store.

A `RecordStore` keeps the records that sources publish. A `BallotStore` keeps small texts, for
groups; several servers replace them by compare-and-set. A backend URL names one of each
(`MetadataBackend`); both may use one database, or each its own.

The interface is asynchronous, because only the central server uses it (docs/adr/0008). Every
implementation must pass tests/contract/test_metadata.py. A store that cannot answer raises
BackendUnavailableError from every method and never returns an empty result (docs/adr/0010).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from mx_artifacts.core.identity import SourceIdentity
from mx_artifacts.core.sources import (
    PodIdentity,
    SourceQuery,
    SourceStatus,
    StoredWorker,
    WorkerRecord,
)
from mx_artifacts.errors import BackendUnavailableError
from mx_artifacts.metadata.summary import SummaryRow


class RecordStore(Protocol):
    """Records keyed by (mx_source_id, worker_id), one worker_rank each.

    Beside each record the store keeps a summary row, and `list` and `scan` read nothing else: what
    they cost does not depend on how large records are. A row that cannot be read (damaged, unknown
    form) is skipped with a warning. A row whose record is damaged or lost is listed; `get` then
    returns None.
    """

    async def put(
        self,
        mx_source_id: str,
        worker_id: str,
        identity: SourceIdentity,
        record: WorkerRecord,
        pod: PodIdentity,
    ) -> None:
        """Store or replace a whole record and its row."""
        ...

    async def get(self, mx_source_id: str, worker_id: str) -> StoredWorker | None:
        """Return a record, or None when there is none or it cannot be read."""
        ...

    async def list(self, query: SourceQuery) -> list[SummaryRow]:
        """Return the rows that pass every filter of `query`, in the order of `listing.ordered`.

        The status of a row is the one that counts at `query.fresh_since_ms`.
        """
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
        """Change the small mutable part of record and row; never rewrite the record's tables.

        An update older than what is stored changes nothing and still returns True, so that a
        late heartbeat cannot revive a STALE record.

        Returns:
            False when there is no such record (the worker then publishes again).
        """
        ...

    async def mark_stale(self, mx_source_id: str, worker_id: str, version: str) -> bool:
        """Set STALE, only if the record still has the `version` of a row; keep updated_at_ms.

        Returns:
            Whether the record was changed.
        """
        ...

    async def delete(self, mx_source_id: str, worker_id: str, version: str | None = None) -> bool:
        """Remove a record and its row, and its source when it was the last.

        With `version`, only if the record still has it.

        Returns:
            Whether a record was removed.
        """
        ...

    def scan(self) -> AsyncIterator[SummaryRow]:
        """Iterate over all rows, for the reaper; may miss those that change meanwhile."""
        ...


class BallotStore(Protocol):
    """Texts keyed by group, replaced by compare-and-set, forgotten after a time to live."""

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


class Connection(Protocol):
    """What one or several stores reach their database through."""

    async def start(self) -> None:
        """Connect. Called once, before any store is used.

        After BackendUnavailableError the stores are used all the same: every method works as soon
        as there is something to connect to.

        Raises:
            BackendUnavailableError, ConfigurationError
        """
        ...

    async def ping(self) -> None:
        """Return when the database answers; raise BackendUnavailableError when it does not."""
        ...

    async def close(self) -> None:
        """Free all resources. Idempotent."""
        ...


@dataclass(frozen=True)
class BackendProperties:
    """Facts about where records are kept, which the server acts upon."""

    name: str
    survives_restart: bool
    """Whether records outlive the server process."""
    shared: bool
    """Whether several servers may use the same records at once."""


@dataclass(frozen=True)
class MetadataBackend:
    """The stores of a central server and all that they are connected to, each connection once."""

    properties: BackendProperties
    records: RecordStore
    ballots: BallotStore
    connections: tuple[Connection, ...] = ()

    async def start(self) -> None:
        """Start every connection, then raise the first error if any could not connect."""
        failures = []
        for connection in self.connections:
            try:
                await connection.start()
            except BackendUnavailableError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    async def ping(self) -> None:
        """Return when all connections answer; else raise BackendUnavailableError."""
        for connection in self.connections:
            await connection.ping()

    async def close(self) -> None:
        """Close every connection. Idempotent."""
        for connection in self.connections:
            await connection.close()
