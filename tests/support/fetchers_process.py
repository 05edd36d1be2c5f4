"""Many targets in one process, as threads that share one NIXL agent, to be killed by a test."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.artifacts import SealedArtifact, make_artifact
from tests.support.received import fetch

REPOSITORY = Path(__file__).parents[2]
CHUNKS, CHUNK_BYTES = 16, 64 << 10


def known_artifacts() -> list[SealedArtifact]:
    """Return two artifacts of equal size, the same in every process."""
    return [
        make_artifact({f"{name}.tar": CHUNKS * CHUNK_BYTES}, CHUNK_BYTES) for name in ("a", "b")
    ]


class FetchersProcess:
    """The parent's handle."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def read(self) -> Any:
        """Wait for the process's next line; None where it ended before."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line else None

    def kill(self) -> None:
        """kill -9, and wait until it is gone. Idempotent."""
        self._process.kill()
        self._process.wait()

    def go(self) -> None:
        """Let the targets begin."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()


@contextmanager
def fetchers_process(endpoints: Sequence[str], threads: int) -> Iterator[FetchersProcess]:
    """Start a process that says it is ready, waits for `go`, and says how many were right."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.fetchers_process", str(threads), *endpoints],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    ) as process:
        handle = FetchersProcess(process)
        try:
            yield handle
        finally:
            handle.kill()


def _main(threads: int, endpoints: Sequence[str]) -> None:
    from tests.support.transfer_process import new_network_agent

    agent, artifacts = new_network_agent("fetchers"), known_artifacts()

    def fetch_one(number: int) -> bool:
        wanted = artifacts[number % len(artifacts)]
        received = fetch(endpoints, wanted.artifact_id, agent, timeout_seconds=120)
        return received.finished and received.content == wanted.content

    print(json.dumps("ready"), flush=True)
    sys.stdin.readline()
    with ThreadPoolExecutor(threads) as pool:
        right = sum(pool.map(fetch_one, range(threads)))
    print(json.dumps(right), flush=True)
    agent.close()


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2:])
