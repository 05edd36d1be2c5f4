"""A node that runs the reference package, in its own environment: `reference_node.py ROLE SERVER`.

Speaks as node.py does. Roles: source, target (warm: imports done, agent made), and
`once REQUEST`, which fetches and installs a single time as a fresh process does. PYTHONPATH must
name tests/interop, whose peer_common drives the package as an engine's loader does.
"""

from __future__ import annotations

import ctypes
import json
import signal
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import peer_common
from modelexpress.metadata.artifact_transfer import publish_artifact_source
from modelexpress.metadata.worker_server import WorkerGrpcServer

TIMEOUT_SECONDS = 300
_PR_SET_PDEATHSIG = 1


class Source:
    """Publishes one cache at a time."""

    def __init__(self, server: str) -> None:
        self._client = peer_common.client({"server": server})
        self._manager = peer_common.manager()
        self._serving: list[Any] = []

    def publish(self, **given: Any) -> dict[str, Any]:
        """Publish a root instead of what was published before; time it until targets may come."""
        self.withdraw()
        server = WorkerGrpcServer([], None, agent_name=self._manager.agent_name)
        server.start()
        self._serving.append(server)
        transfer = peer_common.transfer(given)
        started = time.perf_counter()
        source = publish_artifact_source(
            self._client,
            transfer,
            transfer.prepare_source(),
            peer_common.identity(given),
            self._manager,
            uuid.uuid4().hex[:8],
            worker_grpc_server=server,
            host="127.0.0.1",
            accelerator="",
        )
        seconds = time.perf_counter() - started
        self._serving.append(source)
        return {"seconds": seconds}

    def withdraw(self) -> dict[str, Any]:
        """Serve nothing."""
        while self._serving:
            self._serving.pop().stop()
        return {}


class Target:
    """Fetches and installs."""

    def __init__(self, server: str) -> None:
        self._client = peer_common.client({"server": server})
        self._manager = peer_common.manager()

    def fetch(self, **given: Any) -> dict[str, Any]:
        """Discover, transfer and install into a root; time it all."""
        transfer, identity = peer_common.transfer(given), peer_common.identity(given)
        started = time.perf_counter()
        header = transfer.discover_and_transfer(
            self._client, identity, self._manager, timeout=TIMEOUT_SECONDS
        )
        transfer.install(header)
        return {"seconds": time.perf_counter() - started}


def answer_requests(calls: Mapping[str, Callable[..., dict[str, Any]]]) -> None:
    """Answer requests until stdin closes. A call that raises is answered with what it raised."""
    peer_common.answer({"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            peer_common.answer(calls[request.pop("do")](**request))
        except Exception as error:
            peer_common.answer({"error": f"{type(error).__name__}: {error}"})


def main(role: str, server: str, request: str = "") -> None:
    # A paused process does not see its stdin close; this signal ends it with the benchmark.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if role == "source":
        source = Source(server)
        answer_requests({"publish": source.publish, "withdraw": source.withdraw})
        source.withdraw()
    elif role == "target":
        answer_requests({"fetch": Target(server).fetch})
    else:
        Target(server).fetch(**json.loads(request))


if __name__ == "__main__":
    main(*sys.argv[1:])
