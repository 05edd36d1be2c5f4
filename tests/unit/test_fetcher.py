"""The fetcher's waiting, against a central server whose answers the test scripts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from mx_artifacts.client.central import CentralClient
from mx_artifacts.clock import FakeClock
from mx_artifacts.core.identity import SourceIdentity, SourceType, compute_mx_source_id
from mx_artifacts.core.sources import (
    ArtifactSummary,
    SourceQuery,
    SourceRef,
    SourceStatus,
    StoredWorker,
    WorkerRecord,
)
from mx_artifacts.errors import BackendUnavailableError, NoSourceError
from mx_artifacts.fetcher import ArtifactFetcher, FetcherSettings, SourceWanted
from mx_artifacts.transport.base import Transport

TRITON = SourceIdentity(mx_source_type=SourceType.TRITON_CACHE, model_name="m")
INDUCTOR = SourceIdentity(mx_source_type=SourceType.TORCH_COMPILE_CACHE, model_name="m")
TILELANG = SourceIdentity(mx_source_type=SourceType.TILELANG_CACHE, model_name="m")
START = 1000.0


class Server:
    """Serves an identity from the second on that `since` gives it; down before `up`."""

    def __init__(self, clock: FakeClock, since: dict[SourceIdentity, float], up: float = 0) -> None:
        self._clock, self._since, self._up = clock, since, up

    def list_sources(
        self, query: SourceQuery, identity: SourceIdentity | None = None
    ) -> list[SourceRef]:
        now = self._clock.now() - START
        if now < self._up:
            raise BackendUnavailableError("down")
        return [
            SourceRef(compute_mx_source_id(each), "w", "m", 0)
            for each, second in self._since.items()
            if identity == each and second <= now
        ]

    def get_metadata(self, mx_source_id: str, worker_id: str) -> StoredWorker:
        identity = next(i for i in self._since if compute_mx_source_id(i) == mx_source_id)
        record = WorkerRecord(
            status=SourceStatus.READY,
            worker_grpc_endpoint="h:1",
            artifact=ArtifactSummary("a", 1, 1, 1),
        )
        return StoredWorker(mx_source_id, worker_id, identity, record)


def no_transport() -> Transport:
    raise AssertionError("discovery needs no transport")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
def fetcher(clock: FakeClock, tmp_path: Path) -> Callable[..., ArtifactFetcher]:
    def make(since: dict[SourceIdentity, float], up: float = 0) -> ArtifactFetcher:
        return ArtifactFetcher(
            client=cast(CentralClient, Server(clock, since, up)),
            transport_factory=no_transport,
            settings=FetcherSettings(tmp_path),
            clock=clock,
        )

    return make


def test_a_source_that_comes_later_is_found(
    fetcher: Callable[..., ArtifactFetcher], clock: FakeClock
) -> None:
    found = fetcher({TRITON: 7.0}).discover(TRITON, SourceWanted(wait_seconds=30))
    assert [source.worker_id for source in found] == ["w"]
    assert 7 <= clock.now() - START < 10


def test_a_server_that_comes_up_later_is_waited_for(
    fetcher: Callable[..., ArtifactFetcher],
) -> None:
    assert fetcher({TRITON: 0.0}, up=5).discover(TRITON, SourceWanted(wait_seconds=30))


def test_the_wait_ends(fetcher: Callable[..., ArtifactFetcher], clock: FakeClock) -> None:
    with pytest.raises(NoSourceError):
        fetcher({}).discover(TRITON, SourceWanted(wait_seconds=9))
    assert clock.now() - START == pytest.approx(9)
    with pytest.raises(BackendUnavailableError):
        fetcher({}, up=99).discover(TRITON, SourceWanted(wait_seconds=9))


@pytest.mark.parametrize(
    ("since", "ends_at"),
    [
        pytest.param({TRITON: 0.0, INDUCTOR: 0.0, TILELANG: 0.0}, 0, id="all there"),
        pytest.param({TRITON: 5.0, INDUCTOR: 5.5}, 7, id="one after the other, a third never"),
        pytest.param({}, 60, id="none"),
    ],
)
def test_waiting_for_some(
    fetcher: Callable[..., ArtifactFetcher],
    clock: FakeClock,
    since: dict[SourceIdentity, float],
    ends_at: float,
) -> None:
    fetcher(since).wait_for_some([TRITON, INDUCTOR, TILELANG], 60)
    assert clock.now() - START == pytest.approx(ends_at, abs=0.5)
