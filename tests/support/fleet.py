"""A fleet in one process: a real central server, publishers, fetchers, inproc transports."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from mx_artifacts.artifacts.source.publisher_settings import PublisherSettings
from mx_artifacts.artifacts.target.fetch_values import FetcherSettings, FetchResult
from mx_artifacts.client.central import CentralClient
from mx_artifacts.core.identity import SourceIdentity
from mx_artifacts.fetcher import ArtifactFetcher
from mx_artifacts.identity.identify import probe_identity
from mx_artifacts.kinds.registry import get_kind
from mx_artifacts.observability.events import EventSink, ignore_events
from mx_artifacts.publisher import ArtifactPublisher, PublishResult
from mx_artifacts.server.app import ServerConfig
from mx_artifacts.transfer.timing import DEFAULT_TIMING, TransferTiming
from mx_artifacts.transport.base import Peer, PendingRead, Region, RemoteRange, Transport
from mx_artifacts.transport.faults import FaultyTransport
from tests.support.artifacts import new_agent
from tests.support.central import running_central

KIND = get_kind("generic")
IDENTITY = probe_identity(
    KIND, model_name="fleet", overrides={"backend_framework": "vllm"}
).identity
CHUNK_BYTES = 1 << 20


class Fleet:
    """Its nodes end with it. `place` is below which each gets directories of its own."""

    def __init__(self, address: str, place: Path, resources: ExitStack) -> None:
        self.address = address
        self.place = place
        self._resources = resources

    def client(self) -> CentralClient:
        return self._resources.enter_context(CentralClient(self.address))

    def publisher(self, transport: Transport | None = None, **settings: Any) -> ArtifactPublisher:
        """Return a publisher with an agent of its own, or with `transport`, which it closes."""
        agent = transport or new_agent("source")
        self._resources.callback(agent.close)
        values = {
            "bundle_root": self.place / "sealed",
            "chunk_size_bytes": CHUNK_BYTES,
            "resident_budget_bytes": 1 << 30,
            "port": 0,
            "stream_port": 0,
            **settings,
        }
        return self._resources.enter_context(
            ArtifactPublisher(
                client=self.client(),
                transport=agent,
                settings=PublisherSettings.from_environment(env={}, **values),
            )
        )

    def publish(
        self, root: Path, transport: Transport | None = None, **settings: Any
    ) -> tuple[ArtifactPublisher, PublishResult]:
        """Publish `root` by a publisher of its own."""
        publisher = self.publisher(transport, **settings)
        return publisher, publisher.publish(KIND, IDENTITY, {"": root})

    def fetcher(
        self,
        transport: Callable[[], Transport] = lambda: new_agent("target"),
        events: EventSink = ignore_events,
        timing: TransferTiming = DEFAULT_TIMING,
        **settings: Any,
    ) -> ArtifactFetcher:
        """Return a fetcher with an agent of its own."""
        values = {
            "bundle_root": self.place / "turns",
            "state_directory": self.place / "state",
            "resident_budget_bytes": 1 << 30,
            "port": 0,
            "stream_port": 0,
            **settings,
        }
        fetcher = ArtifactFetcher(
            client=self.client(),
            settings=FetcherSettings.from_environment(env={}, **values),
            transport_factory=transport,
            events=events,
            timing=timing,
        )
        return self._resources.enter_context(fetcher)

    def fetch(
        self, fetcher: ArtifactFetcher, root: Path, identity: SourceIdentity = IDENTITY, **how: Any
    ) -> FetchResult:
        return fetcher.fetch_and_install(KIND, identity, {"": root}, **how)


class Counting(FaultyTransport):
    """Counts the bytes that it reads from each peer, slowly, and does as `on_peer` says."""

    def __init__(self, pause_seconds: float = 0.01) -> None:
        super().__init__(new_agent("target"), {})
        self.bytes_from: dict[str, int] = {}
        self.fault_of: dict[str, object] = {}
        self.pause_seconds = pause_seconds
        self._counting = threading.Lock()

    def post_read(
        self, peer: Peer, source: Sequence[RemoteRange], target: Sequence[tuple[Region, int]]
    ) -> PendingRead:
        time.sleep(self.pause_seconds)
        with self._counting:
            so_far = self.bytes_from.get(peer.name, 0)
            self.bytes_from[peer.name] = so_far + sum(each.length for each in source)
            fault = self.fault_of.get(peer.name)
            self._plan = {} if fault is None else {self._posted + 1: fault}  # type: ignore[dict-item]
            return super().post_read(peer, source, target)


@contextmanager
def running_fleet(place: Path) -> Iterator[Fleet]:
    with running_central(ServerConfig(port=0)) as address, ExitStack() as resources:
        yield Fleet(address, place, resources)


def fill_cache(root: Path, *, files: int = 40, file_bytes: int = 100_000, large: int = 0) -> Path:
    """Write files of random bytes in directories of ten, and one of `large` bytes."""
    for number in range(files):
        path = root / f"d{number // 10}" / f"kernel{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(file_bytes))
    if large:
        (root / "large.bin").write_bytes(os.urandom(large))
    for path in root.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    return root
