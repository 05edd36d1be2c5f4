"""A fleet in one process: a real central server, publishers, fetchers, inproc transports."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from mx_artifacts.client.central import CentralClient
from mx_artifacts.core.identity import SourceIdentity
from mx_artifacts.fetcher import ArtifactFetcher, Fetched, FetcherSettings
from mx_artifacts.kinds.identity import probe_identity
from mx_artifacts.kinds.registry import get_kind
from mx_artifacts.observability.events import EventSink, drop
from mx_artifacts.publisher import ArtifactPublisher, Published, PublisherSettings
from mx_artifacts.server.app import ServerConfig
from mx_artifacts.transport.base import Transport
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

    def publisher(self, **settings: Any) -> ArtifactPublisher:
        """Return a publisher with an agent of its own."""
        agent = new_agent("source")
        self._resources.callback(agent.close)
        values = {
            "bundle_root": self.place / "sealed",
            "chunk_size_bytes": CHUNK_BYTES,
            "resident_budget_bytes": 1 << 30,
            **settings,
        }
        return self._resources.enter_context(
            ArtifactPublisher(
                client=self.client(), transport=agent, settings=PublisherSettings(**values)
            )
        )

    def publish(self, root: Path, **settings: Any) -> tuple[ArtifactPublisher, Published]:
        """Publish `root` by a publisher of its own."""
        publisher = self.publisher(**settings)
        return publisher, publisher.publish(KIND, IDENTITY, {"": root})

    def fetcher(
        self,
        transport: Callable[[], Transport] = lambda: new_agent("target"),
        events: EventSink = drop,
        **settings: Any,
    ) -> ArtifactFetcher:
        """Return a fetcher with an agent of its own."""
        values = {
            "bundle_root": self.place / "turns",
            "state_directory": self.place / "state",
            "resident_budget_bytes": 1 << 30,
            **settings,
        }
        fetcher = ArtifactFetcher(
            client=self.client(),
            settings=FetcherSettings(**values),
            transport_factory=transport,
            events=events,
        )
        return self._resources.enter_context(fetcher)

    def fetch(
        self, fetcher: ArtifactFetcher, root: Path, identity: SourceIdentity = IDENTITY, **how: Any
    ) -> Fetched:
        return fetcher.fetch_and_install(KIND, identity, {"": root}, **how)


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
