"""A source or a target in a real process of its own, to be killed by a test.

Both speak JSON lines on stdout and end when their stdin closes, so that they never outlive a test.
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Callable
from typing import Any

from mx_artifacts.transport.base import PendingRead, Transport
from mx_artifacts.transport.faults import FaultyTransport, Stall
from mx_artifacts.transport.registry import create_transport
from tests.support.artifacts import CHUNK_SIZE, SealedArtifact, make_artifact, serving
from tests.support.child import Child
from tests.support.received import fetch

CHUNKS = 8


def new_network_agent(role: str) -> Transport:
    """Return an agent of the transport that TEST_TRANSPORT names, in this process."""
    transport = os.environ.get("TEST_TRANSPORT", "stream")
    return create_transport(transport, f"{role}-{uuid.uuid4().hex}")


def same_artifact() -> SealedArtifact:
    """Return an artifact that is equal in every process."""
    return make_artifact({"artifact.tar": CHUNKS * CHUNK_SIZE})


def transfer_process(role: str, *arguments: str) -> Child:
    """Return `source DIRECTORY` or `target ENDPOINT DIRECTORY STALLED_READ`, for a block."""
    return Child([sys.executable, "-m", "tests.support.transfer_process", role, *arguments])


def _say(**values: Any) -> None:
    print(json.dumps(values), flush=True)


def _source(directory: str) -> None:
    artifact = same_artifact()
    with serving(artifact, slots=2, transport=new_network_agent("source")) as server:
        _say(endpoint=server.endpoint)
        sys.stdin.read()


class _TellingTransport(FaultyTransport):
    """Says when the read numbered `stalled` was posted; it stalls for good."""

    def __init__(self, stalled: int) -> None:
        super().__init__(new_network_agent("target"), {stalled: Stall()})
        self._reads_left = stalled

    def post_read(self, *arguments: Any) -> PendingRead:
        read = super().post_read(*arguments)
        self._reads_left -= 1
        if self._reads_left == 0:
            _say(stalled=True)
        return read


def _target(endpoint: str, directory: str, stalled_read: str) -> None:
    """Fetch one chunk after the other, until it stalls."""
    fetch(
        endpoint,
        "",
        _TellingTransport(int(stalled_read)),
        timeout_seconds=600,
        max_inflight_chunks=1,
    )


if __name__ == "__main__":
    roles: dict[str, Callable[..., None]] = {"source": _source, "target": _target}
    roles[sys.argv[1]](*sys.argv[2:])
