"""The connection to Redis or Valkey: sends commands and scripts, and translates errors.

The only module that imports redis. Connections are made on use, and made again after a failure. So
this process uses a Redis that comes back without a restart.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, cast
from urllib.parse import urlsplit

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from mx_artifacts.errors import ConfigurationError
from mx_artifacts.metadata.redis_failures import TIMEOUT, UNREACHABLE, unavailable
from mx_artifacts.metadata.redis_scripts import Script

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 2.0
"""To connect and for each answer: far above a healthy Redis, far below a client's deadline."""
MAX_CONNECTIONS = 32

Hash = Mapping[bytes, bytes]
Argument = bytes | str | int | float
Command = tuple[Argument, ...]

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


class ScriptCall(NamedTuple):
    """A script that is to run on one key."""

    script: Script
    key: str
    arguments: Sequence[Argument]

    def command(self) -> Command:
        return ("EVALSHA", self.script.sha1, 1, self.key, *self.arguments)


class RedisConnection:
    """One client with a pool of connections; methods may run concurrently on one event loop."""

    def __init__(self, url: str) -> None:
        """Check `url`; nothing is connected before `start`.

        Raises:
            ConfigurationError: the URL or one of its options makes no sense.
        """
        self._client, self._address = _connect(url)

    async def start(self) -> None:
        """Check that Redis answers; everything works later even if it does not now."""
        await self.ping()

    async def ping(self) -> None:
        """Return when Redis answers."""
        with self._translated():
            await self._client.ping()

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def send(self, commands: Sequence[Command], *, atomic: bool = False) -> Sequence[object]:
        """Send all commands at once and return their answers in order.

        An answer that says that a key holds another type, or that a script is not known, is
        returned as the exception; any other refusal is raised.

        Raises:
            BackendUnavailableError
        """
        with self._translated():
            async with self._client.pipeline(transaction=atomic) as pipe:
                for command in commands:
                    pipe.execute_command(*command)
                answers = await pipe.execute(raise_on_error=False)
            for answer in answers:
                if isinstance(answer, Exception) and not _concerns_one_command(answer):
                    raise answer
        return cast("Sequence[object]", answers)

    async def hashes(self, keys: Sequence[str], *fields: str) -> Sequence[Hash]:
        """Return hashes, or these `fields` of them; without those that do not exist.

        A key that holds something else than a hash is an empty one, with a warning.
        """
        name = "HMGET" if fields else "HGETALL"
        answers = await self.send([(name, key, *fields) for key in keys])
        for key, answer in zip(keys, answers, strict=True):
            if isinstance(answer, Exception):
                logger.warning("skipped the key %s: it is not a hash", key)
        return [_hash(answer, fields) for answer in answers]

    async def run(self, *calls: ScriptCall) -> Sequence[object]:
        """Run scripts in one round trip, and return their answers in order.

        Redis forgets scripts when it restarts: they are then loaded and all calls made again.
        """
        commands = [call.command() for call in calls]
        answers = await self.send(commands)
        if any(isinstance(answer, NoScriptError) for answer in answers):
            await self.send([("SCRIPT LOAD", call.script.text) for call in calls])
            answers = await self.send(commands)
        for answer in answers:
            if isinstance(answer, Exception):
                with self._translated():
                    raise answer
        return answers

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (RedisError, OSError) as error:
            code = next((code for kind, code in _CODES if isinstance(error, kind)), None)
            raise unavailable(code, str(error), self._address) from error


def _concerns_one_command(answer: Exception) -> bool:
    """Return whether an answer says nothing of Redis's health, but of a key or a script."""
    is_wrong_type = isinstance(answer, ResponseError) and "WRONGTYPE" in str(answer)
    return is_wrong_type or isinstance(answer, NoScriptError)


def _hash(answer: object, fields: Sequence[str]) -> Hash:
    if isinstance(answer, Exception):
        return {}
    if not fields:
        return cast("Hash", answer)
    values = zip(fields, cast("Sequence[bytes | None]", answer), strict=True)
    return {name.encode(): value for name, value in values if value is not None}


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
            f"the Redis URL is not valid ({error}); it should be {expected}",
            hint="correct --backend or MX_METADATA_BACKEND; for the backend `redis`, correct "
            "REDIS_URL",
        ) from None
    address = f"{parts.hostname}:{parts.port or 6379}/{parts.path.strip('/') or 0}"
    return Redis.from_pool(pool), address
