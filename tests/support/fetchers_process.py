"""Many targets in one process, as threads that share one NIXL agent, to be killed by a test."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.support.artifacts import SealedArtifact, make_artifact
from tests.support.child import Child
from tests.support.received import fetch

CHUNKS, CHUNK_BYTES = 16, 64 << 10


def known_artifacts() -> list[SealedArtifact]:
    """Return two artifacts of equal size, the same in every process."""
    return [
        make_artifact({f"{name}.tar": CHUNKS * CHUNK_BYTES}, CHUNK_BYTES) for name in ("a", "b")
    ]


def fetchers_process(endpoints: Sequence[str], threads: int) -> Child:
    """Return a process that says it is ready, waits for a line, and says how many were right."""
    words = ("-m", "tests.support.fetchers_process", str(threads), *endpoints)
    return Child([sys.executable, *words])


def _main(threads: int, endpoints: Sequence[str]) -> None:
    from tests.support.transfer_process import new_network_agent

    agent, artifacts = new_network_agent("fetchers"), known_artifacts()

    def fetch_one(number: int) -> bool:
        wanted = artifacts[number % len(artifacts)]
        received = fetch(endpoints, wanted.artifact_id, agent, timeout_seconds=120)
        return received.finished and received.content == wanted.content

    print("ready", flush=True)
    sys.stdin.readline()
    with ThreadPoolExecutor(threads) as pool:
        right = sum(pool.map(fetch_one, range(threads)))
    print(right, flush=True)
    agent.close()


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2:])
