"""Records in Redis or Valkey, in the layout of deployed ModelExpress servers (records.py).

The only module that imports redis. No record has a TTL: the reaper deletes. Ballots of groups
(mx:group:{group}, one text each) have one. Connections are made on use and remade after a failure,
so a Redis that comes back is used again without a restart here.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar, cast
from urllib.parse import urlsplit

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from mx_artifacts.core.identity import SourceIdentity
from mx_artifacts.core.sources import (
    PodIdentity,
    SourceQuery,
    SourceRef,
    SourceStatus,
    StoredWorker,
    WorkerRecord,
)
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.metadata import records, redis_scripts
from mx_artifacts.metadata.base import BackendProperties
from mx_artifacts.metadata.listing import ref_of, select
from mx_artifacts.metadata.redis_failures import TIMEOUT, UNREACHABLE, unavailable

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 2.0
"""To connect and for each answer: far above a healthy Redis, far below a client's deadline."""
MAX_CONNECTIONS = 32
BATCH_SIZE = 128
"""Hashes in one pipeline; bounds memory, since a weights record may hold thousands of tensors."""

_PREFIX = "mx:source:"
_INDEX_PATTERN = f"{_PREFIX}{'?' * 16}"
_INDEX_KEY = re.compile(rf"{_PREFIX}([0-9a-f]{{16}})".encode())

Hash = Mapping[bytes, bytes]
_Value = bytes | bytearray | memoryview | str | int | float
_Mapping = dict[_Value, _Value]
T = TypeVar("T")

# What the client library has a class for; first match wins.
_CODES: tuple[tuple[type[Exception], str], ...] = (
    (AuthenticationError, "NOAUTH"),
    (NoPermissionError, "NOPERM"),
    (BusyLoadingError, "LOADING"),
    (ReadOnlyError, "READONLY"),
    (OutOfMemoryError, "OOM"),
    (RedisTimeoutError, TIMEOUT),
    (RedisConnectionError, UNREACHABLE),
)


def _index_key(mx_source_id: str) -> str:
    return f"{_PREFIX}{mx_source_id}"


def _worker_key(mx_source_id: str, worker_id: str) -> str:
    return f"{_PREFIX}{mx_source_id}:{worker_id}"


def _ballots_key(group: str) -> str:
    return f"mx:group:{group}"


def _connect(url: str) -> tuple[Redis, str]:
    """Return a client that is not connected yet, and its host:port/db without the password."""
    expected = "redis://[user:password@]host:port[/db], or rediss:// for TLS"
    try:
        parts = urlsplit(url)
        if not (parts.hostname and re.fullmatch(r"(/\d*)?", parts.path)):
            raise ValueError("host or database number is missing or malformed")
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=MAX_CONNECTIONS,
            timeout=TIMEOUT_SECONDS,
            socket_connect_timeout=TIMEOUT_SECONDS,
            socket_timeout=TIMEOUT_SECONDS,
            # One more try finds out that Redis was restarted under a pooled connection. Every
            # command here may run twice. A timeout is not tried again: it has cost enough.
            retry=Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,)),
            retry_on_error=[RedisConnectionError],  # clients before 6 ask for it twice
            protocol=2,  # all that is needed, and every server and proxy speaks it
        )
        # Opens nothing, but refuses options that do not exist.
        pool.make_connection()  # type: ignore[no-untyped-call]
    except (ValueError, TypeError) as error:
        raise ConfigurationError(
            f"the Redis URL makes no sense ({error}); it should be {expected}",
            hint="correct --backend or MX_METADATA_BACKEND; of the backend `redis`, REDIS_URL",
        ) from None
    address = f"{parts.hostname}:{parts.port or 6379}/{parts.path.strip('/') or 0}"
    return Redis.from_pool(pool), address


class RedisBackend:
    """One client with a pool of connections; methods may run concurrently on one event loop."""

    properties = BackendProperties(name="redis", survives_restart=True, shared=True)

    def __init__(self, url: str) -> None:
        """Check `url`; nothing is connected before `start`.

        Raises:
            ConfigurationError: the URL or one of its options makes no sense.
        """
        self._client, self._address = _connect(url)
        self._update_status = self._client.register_script(redis_scripts.UPDATE_STATUS)
        self._mark_stale = self._client.register_script(redis_scripts.MARK_STALE)
        self._delete = self._client.register_script(redis_scripts.DELETE)
        self._replace_ballots = self._client.register_script(redis_scripts.REPLACE_BALLOTS)

    async def start(self) -> None:
        """Check that Redis answers; all methods work later even if it does not now."""
        await self.ping()

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def ping(self) -> None:
        """Return when Redis answers."""
        with self._translated():
            await self._client.ping()

    async def put(
        self,
        mx_source_id: str,
        worker_id: str,
        identity: SourceIdentity,
        record: WorkerRecord,
        pod: PodIdentity,
    ) -> None:
        """Replace the whole record, as one transaction; Redis has no use for the pod."""
        worker_key, index_key = _worker_key(mx_source_id, worker_id), _index_key(mx_source_id)
        rank = str(record.worker_rank)
        fields: _Mapping = {
            rank: records.record_to_json(record),
            records.status_field(record.worker_rank): records.small_to_json(record),
        }
        marks: _Mapping = {
            records.ATTRIBUTES: records.attributes_to_json(identity),
            worker_id: rank,
        }
        with self._translated():
            async with self._client.pipeline(transaction=True) as pipe:
                pipe.delete(worker_key)  # the worker may have had another rank
                pipe.hset(worker_key, mapping=fields)
                pipe.hset(index_key, mapping=marks)
                await pipe.execute()

    async def get(self, mx_source_id: str, worker_id: str) -> StoredWorker | None:
        """Return a record, or None when there is none or it cannot be read."""
        index, fields = await self._hashes(
            [_index_key(mx_source_id), _worker_key(mx_source_id, worker_id)]
        )
        return _read(mx_source_id, worker_id.encode(), index, fields)

    async def list(self, query: SourceQuery) -> list[SourceRef]:
        """Return the records that pass."""
        wanted = query.mx_source_id
        source_ids = await self._source_ids() if wanted is None else [wanted]
        return select([ref async for ref in self._refs(source_ids)], query)

    async def update_status(
        self,
        mx_source_id: str,
        worker_id: str,
        worker_rank: int,
        status: SourceStatus,
        updated_at_ms: int,
        source_load: float | None,
    ) -> bool:
        """Write the small JSON; False when the worker has to publish again."""
        keys = [_worker_key(mx_source_id, worker_id), _index_key(mx_source_id)]
        load = "" if source_load is None else repr(source_load)
        args: Sequence[_Value] = [worker_id, worker_rank, int(status), updated_at_ms, load]
        with self._translated():
            return bool(await self._update_status(keys, args))

    async def mark_stale(
        self, mx_source_id: str, worker_id: str, worker_rank: int, if_updated_at_ms: int
    ) -> bool:
        """Set STALE if nothing happened to the record meanwhile."""
        with self._translated():
            return bool(
                await self._mark_stale(
                    [_worker_key(mx_source_id, worker_id)], [worker_rank, if_updated_at_ms]
                )
            )

    async def delete(
        self, mx_source_id: str, worker_id: str, if_updated_at_ms: int | None = None
    ) -> bool:
        """Remove a record, and its source's index when it was the last."""
        keys = [_worker_key(mx_source_id, worker_id), _index_key(mx_source_id)]
        condition = "" if if_updated_at_ms is None else if_updated_at_ms
        with self._translated():
            return bool(await self._delete(keys, [worker_id, condition]))

    async def scan(self) -> AsyncIterator[SourceRef]:
        """Iterate over all records."""
        async for ref in self._refs(await self._source_ids()):
            yield ref

    async def get_ballots(self, group: str) -> bytes | None:
        """Return a group's ballots."""
        with self._translated():
            return cast("bytes | None", await self._client.get(_ballots_key(group)))

    async def replace_ballots(
        self, group: str, expected: bytes | None, ballots: bytes, ttl_seconds: float
    ) -> bool:
        """Write a group's ballots if nobody else did meanwhile."""
        args: Sequence[_Value] = [expected or b"", ballots, int(ttl_seconds * 1000)]
        with self._translated():
            return bool(await self._replace_ballots([_ballots_key(group)], args))

    # --- reading ---------------------------------------------------------------------------------

    async def _source_ids(self) -> Sequence[str]:
        """Find all sources by SCAN, which may name one twice."""
        found = set()
        with self._translated():
            async for key in self._client.scan_iter(match=_INDEX_PATTERN, count=1000):
                if match := _INDEX_KEY.fullmatch(key):
                    found.add(match[1].decode())
        return sorted(found)

    async def _refs(self, source_ids: Sequence[str]) -> AsyncIterator[SourceRef]:
        for sources in _batches(source_ids):
            indexes = await self._hashes([_index_key(source) for source in sources])
            entries = [
                (source, worker, index)
                for source, index in zip(sources, indexes, strict=True)
                for worker in index
                if worker != records.ATTRIBUTES.encode()
            ]
            for batch in _batches(entries):
                keys = [_index_key(source).encode() + b":" + worker for source, worker, _ in batch]
                hashes = await self._hashes(keys)
                for (source, worker, index), fields in zip(batch, hashes, strict=True):
                    stored = _read(source, worker, index, fields)
                    if stored is not None:
                        yield ref_of(stored)

    async def _hashes(self, keys: Sequence[str | bytes]) -> Sequence[Hash]:
        """Return hashes, empty for a key that does not exist or holds something else."""
        with self._translated():
            async with self._client.pipeline(transaction=False) as pipe:
                for key in keys:
                    pipe.hgetall(key)
                answers = await pipe.execute(raise_on_error=False)
            for key, answer in zip(keys, answers, strict=True):
                if isinstance(answer, ResponseError) and "WRONGTYPE" in str(answer):
                    logger.warning("skipped the key %s: it is not a hash", key)
                elif isinstance(answer, Exception):
                    raise answer
        return [{} if isinstance(a, Exception) else cast(Hash, a) for a in answers]

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (RedisError, OSError) as error:
            code = next((code for kind, code in _CODES if isinstance(error, kind)), None)
            raise unavailable(code, str(error), self._address) from error


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), BATCH_SIZE):
        yield items[start : start + BATCH_SIZE]


def _read(mx_source_id: str, worker: bytes, index: Hash, fields: Hash) -> StoredWorker | None:
    """Return a worker, or None, with a warning when its record cannot be read."""
    attributes = index.get(records.ATTRIBUTES.encode())
    try:
        return records.stored_worker(
            mx_source_id, worker.decode(), attributes, index.get(worker), fields
        )
    except ValueError as error:
        logger.warning(
            "skipped worker %r of source %s: its record cannot be read: %s",
            worker,
            mx_source_id,
            error,
        )
        return None
