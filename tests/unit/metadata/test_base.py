"""A backend made of two stores, each with its own connection."""

from __future__ import annotations

import asyncio

import pytest

from mx_artifacts.errors import BackendUnavailableError
from mx_artifacts.metadata.base import BackendProperties, MetadataBackend
from mx_artifacts.metadata.memory import MemoryRecords
from mx_artifacts.metadata.memory_ballots import MemoryBallots


class Recorded:
    """A connection that writes down what is asked of it, and may be down."""

    def __init__(self, *, is_down: bool = False) -> None:
        self.is_down = is_down
        self.calls: list[str] = []

    async def start(self) -> None:
        self.calls.append("start")
        await self._answer()

    async def ping(self) -> None:
        self.calls.append("ping")
        await self._answer()

    async def close(self) -> None:
        self.calls.append("close")

    async def _answer(self) -> None:
        if self.is_down:
            raise BackendUnavailableError("it is down")


def backend(*connections: Recorded) -> MetadataBackend:
    properties = BackendProperties("both", survives_restart=True, shared=True)
    return MetadataBackend(properties, MemoryRecords(), MemoryBallots(), connections)


def test_every_connection_is_started_though_one_is_down() -> None:
    down, up = Recorded(is_down=True), Recorded()
    with pytest.raises(BackendUnavailableError, match="it is down"):
        asyncio.run(backend(down, up).start())
    assert (down.calls, up.calls) == (["start"], ["start"])


def test_a_backend_answers_when_all_its_connections_do() -> None:
    up, down = Recorded(), Recorded(is_down=True)
    asyncio.run(backend(up, up).ping())
    with pytest.raises(BackendUnavailableError, match="it is down"):
        asyncio.run(backend(up, down).ping())


def test_closing_closes_all() -> None:
    down, up = Recorded(is_down=True), Recorded()
    asyncio.run(backend(down, up).close())
    assert (down.calls, up.calls) == (["close"], ["close"])


def test_memory_has_nothing_to_connect_to() -> None:
    both = backend()
    asyncio.run(both.start())
    asyncio.run(both.ping())
    asyncio.run(both.close())
