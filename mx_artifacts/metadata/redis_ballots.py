"""Ballots of groups in Redis: `mx:group:{group}`, one text each, which Redis forgets by its TTL."""

from __future__ import annotations

from typing import cast

from mx_artifacts.metadata.redis_connection import RedisConnection, ScriptCall
from mx_artifacts.metadata.redis_scripts import REPLACE_BALLOTS


class RedisBallots:
    """Keeps nothing itself, so several servers may serve one group."""

    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection

    async def get_ballots(self, group: str) -> bytes | None:
        """Return a group's ballots."""
        [ballots] = await self._connection.send([("GET", _key(group))])
        return cast("bytes | None", ballots)

    async def replace_ballots(
        self, group: str, expected: bytes | None, ballots: bytes, ttl_seconds: float
    ) -> bool:
        """Write the ballots of a group unless they were changed meanwhile."""
        arguments = (expected or b"", ballots, int(ttl_seconds * 1000))
        [written] = await self._connection.run(ScriptCall(REPLACE_BALLOTS, _key(group), arguments))
        return bool(written)


def _key(group: str) -> str:
    return f"mx:group:{group}"
