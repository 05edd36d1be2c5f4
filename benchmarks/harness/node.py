"""A node of a benchmark, in a process of its own.

usage: python -m benchmarks.harness.node ROLE HOST [SERVER CACHE]

Roles: central (a central server), source and target (the library in a warm process: imports done,
NIXL's agent made). HOST is the address that others reach it at, CACHE what they move (moved.py).
Each node prints on stdout that it is ready, then takes one JSON object a line on stdin,
{"do": what, ...}, and answers it with one on stdout. It ends when its stdin closes, so that it
never outlives the benchmark.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness.moved import Identities

_PAUSED_SECONDS = 3600.0
"""How long a source may be silent: those of the reference are paused while others are measured."""

Answer = Mapping[str, Any]


def say(**values: Any) -> None:
    """Answer the benchmark."""
    print(json.dumps(values), flush=True)


def peak_rss_mib() -> float:
    """Return the most memory that this process had resident so far, shared pages included."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise OSError("/proc/self/status has no VmHWM")


def central(host: str) -> None:
    """Serve as the central server."""
    from mx_artifacts.server.app import ServerConfig, serve

    config = ServerConfig(host=host, port=0, heartbeat_timeout_seconds=_PAUSED_SECONDS)

    async def main() -> None:
        stop = asyncio.Event()
        served = asyncio.create_task(
            serve(config, on_ready=lambda address: say(address=address), stop=stop)
        )
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        stop.set()
        await served

    asyncio.run(main())


class Source:
    """Publishes one cache at a time."""

    def __init__(
        self, host: str, server: str, identities: Identities, resources: contextlib.ExitStack
    ) -> None:
        from mx_artifacts.client.central import CentralClient
        from mx_artifacts.transport.registry import open_transport

        self._host = host
        self._identities = identities
        self._client = resources.enter_context(CentralClient(server))
        self._transport = resources.enter_context(contextlib.closing(open_transport()))
        self._publishers = resources.enter_context(contextlib.ExitStack())

    def publish(self, model: str, root: str, bundle_root: str, resident_bytes: int) -> Answer:
        """Publish `root` instead of what was published before; time it until targets may come."""
        from mx_artifacts.artifacts.source.publisher_settings import PublisherSettings
        from mx_artifacts.publisher import ArtifactPublisher

        self.withdraw()
        kind, identity = self._identities.of(model)
        settings = PublisherSettings.from_environment(
            bundle_root=Path(bundle_root),
            host=self._host,
            port=0,
            resident_budget_bytes=resident_bytes,
        )
        publisher = self._publishers.enter_context(
            ArtifactPublisher(client=self._client, transport=self._transport, settings=settings)
        )
        started = time.perf_counter()
        published = publisher.publish(kind, identity, {"": Path(root)})
        seconds = time.perf_counter() - started
        return {"seconds": seconds, "files": published.roots[0].report.file_count}

    def identity(self, model: str) -> Answer:
        """Return the identity under which it publishes, for peers that do not probe it."""
        return {"identity": self._identities.of(model)[1].as_dict()}

    def withdraw(self) -> Answer:
        """Serve nothing, and free what it took."""
        self._publishers.close()
        return {}


class Target:
    """Fetches and installs, and serves on where it is told to seed."""

    def __init__(
        self, host: str, server: str, identities: Identities, resources: contextlib.ExitStack
    ) -> None:
        from mx_artifacts.client.central import CentralClient

        self._host = host
        self._identities = identities
        self._client = resources.enter_context(CentralClient(server))
        self._open = resources.enter_context(contextlib.ExitStack())
        self.renew(seed=False)

    def renew(self, seed: bool, compression: str = "auto", durable: bool = False) -> Answer:
        """Serve nothing any more, and be ready to fetch anew."""
        from mx_artifacts.artifacts.target.fetch_values import FetcherSettings
        from mx_artifacts.fetcher import ArtifactFetcher
        from mx_artifacts.transport.registry import open_transport

        self._open.close()
        transport = open_transport()
        self._open.callback(transport.close)
        settings = FetcherSettings.from_environment(
            host=self._host, port=0, seed=seed, compression=compression, durable=durable
        )
        self._fetcher = self._open.enter_context(
            ArtifactFetcher(
                client=self._client, settings=settings, transport_factory=lambda: transport
            )
        )
        return {}

    def fetch(self, model: str, root: str, replace: bool) -> Answer:
        """Fetch and install into `root`; time the whole call, discovery included."""
        kind, identity = self._identities.of(model)
        started = time.perf_counter()
        fetched = self._fetcher.fetch_and_install(kind, identity, {"": Path(root)}, replace=replace)
        return {
            "seconds": time.perf_counter() - started,
            "transfer_seconds": fetched.transfer_seconds,
            "install_seconds": fetched.install_seconds,
            "bytes": fetched.total_bytes,
        }


def answer_requests(calls: Mapping[str, Callable[..., Answer]]) -> None:
    """Answer requests until stdin closes. A call that raises is answered with what it raised."""
    say(ready=True)
    for request in _requests():
        call = calls[request.pop("do")]
        try:
            answer = dict(call(**request))
        except Exception as error:
            say(error=f"{type(error).__name__}: {error}")
        else:
            say(**answer)


def _requests() -> Iterator[dict[str, Any]]:
    for line in sys.stdin:
        yield json.loads(line)


def main(role: str, host: str, server: str = "", cache: str = "") -> None:
    if role == "central":
        return central(host)
    with contextlib.ExitStack() as resources:
        identities = Identities(cache)
        peak = {"peak_rss_mib": lambda: {"mib": peak_rss_mib()}}
        if role == "source":
            source = Source(host, server, identities, resources)
            answer_requests(
                {
                    **peak,
                    "publish": source.publish,
                    "withdraw": source.withdraw,
                    "identity": source.identity,
                }
            )
        else:
            target = Target(host, server, identities, resources)
            answer_requests({**peak, "fetch": target.fetch, "renew": target.renew})


if __name__ == "__main__":
    main(*sys.argv[1:])
