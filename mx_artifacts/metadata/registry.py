"""Finds a metadata backend by its URL. A new backend is a module here and a line in `_BACKENDS`.

Another package adds a backend by an entry point of the group `mx_artifacts.metadata_backends`. The
name of the entry point is the scheme of the URL (lower-case); its object takes the URL and returns
the backend.
"""

from __future__ import annotations

from collections.abc import Callable

from mx_artifacts import settings
from mx_artifacts.configuration import SettingValues
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.metadata.base import BackendProperties, MetadataBackend
from mx_artifacts.runtime.entry_points import load_entry_point

ENTRY_POINTS = "mx_artifacts.metadata_backends"
MEMORY_URL = "memory:"
EXPECTED = "memory: or redis://host:port/db (rediss:// for TLS)"


def _memory(url: str) -> MetadataBackend:
    from mx_artifacts.metadata.memory import MemoryRecords
    from mx_artifacts.metadata.memory_ballots import MemoryBallots

    if url not in ("memory", MEMORY_URL):
        raise ConfigurationError(
            f"the metadata backend {url!r} should be exactly memory:",
            hint="leave out what follows memory:",
        )
    return MetadataBackend(
        BackendProperties("memory", survives_restart=False, shared=False),
        MemoryRecords(),
        MemoryBallots(),
    )


def _redis(url: str) -> MetadataBackend:
    try:
        from mx_artifacts.metadata.redis_ballots import RedisBallots
        from mx_artifacts.metadata.redis_connection import RedisConnection
        from mx_artifacts.metadata.redis_records import RedisRecords
    except ImportError as error:
        raise ConfigurationError(
            f"the metadata backend is Redis, but its client cannot be imported: {error}",
            hint="run `pip install redis`",
        ) from error
    connection = RedisConnection(url)
    return MetadataBackend(
        BackendProperties("redis", survives_restart=True, shared=True),
        RedisRecords(connection),
        RedisBallots(connection),
        (connection,),
    )


_BACKENDS: dict[str, Callable[[str], MetadataBackend]] = {
    "memory": _memory,
    "redis": _redis,
    "rediss": _redis,
}


def backend_url(values: SettingValues) -> str:
    """Return the URL of a backend for its URL or name; upper and lower case are the same.

    `redis` alone takes its address from the Redis settings.
    """
    backend = values.read(settings.METADATA_BACKEND)
    name, separator, rest = backend.partition(":")
    name = name.lower()
    if name == "memory" and not rest:
        return MEMORY_URL
    if separator or name != "redis":
        return f"{name}{separator}{rest}"
    host, port = values.read(settings.REDIS_HOST), values.read(settings.REDIS_PORT)
    return values.read(settings.REDIS_URL) or f"redis://{host}:{port}"


def create_backend(url: str) -> MetadataBackend:
    """Return the backend that `url` names, not connected yet.

    Raises:
        ConfigurationError: no backend has this scheme, or the rest of the URL makes no sense.
    """
    scheme = url.partition(":")[0].lower()
    make = _BACKENDS.get(scheme) or load_entry_point(ENTRY_POINTS, scheme)
    if make is None:
        raise ConfigurationError(
            f"metadata backend {url.partition('://')[0]!r} is not known; it should be {EXPECTED}",
            hint="set MX_METADATA_BACKEND, or --backend, to one of these",
        )
    return make(url)
