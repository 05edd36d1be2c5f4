"""Two hundred targets at once, of which half are killed: the others get what they asked for."""

from __future__ import annotations

import os
import random
import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from mx_artifacts.worker.serving_settings import ServingSettings
from tests.support.artifacts import SOURCE_ID, ArtifactServer
from tests.support.child import Child
from tests.support.fetchers_process import fetchers_process, known_artifacts
from tests.support.transfer_process import new_network_agent

PROCESSES, THREADS = 4, 50
KILL_WITHIN_SECONDS = 0.5
"""Less than any of them takes to get all of its targets served."""
FREED_WITHIN_SECONDS = 20.0


def sessions_of(server: ArtifactServer) -> int:
    return len(server.artifacts._sessions._open)


def kill_some(targets: list[Child], rng: random.Random) -> list[threading.Timer]:
    """Kill half of `targets`, each at a moment of its own; return the timers."""
    doomed = rng.sample(targets, len(targets) // 2)
    timers = [
        threading.Timer(rng.uniform(0.0, KILL_WITHIN_SECONDS), target.kill) for target in doomed
    ]
    for timer in timers:
        timer.start()
    return timers


@pytest.mark.parametrize("slots", [0, 4], ids=["resident", "slots"])
def test_half_of_two_hundred_targets_are_killed(tmp_path: Path, slots: int) -> None:
    rng = random.Random(slots)
    artifacts = known_artifacts()
    with closing(new_network_agent("source")) as agent, ExitStack() as stack:
        server = ArtifactServer(agent, ServingSettings(host="127.0.0.1", port=0, stream_port=0))
        stack.callback(server.stop, 0.0)
        for artifact in artifacts:
            bundles = artifact.bundles(tmp_path if slots else None)
            server.artifacts.add_artifact(
                SOURCE_ID, artifact.artifact_id, artifact.manifest, bundles, slots=slots or 1
            )
        server.start()
        targets = [
            stack.enter_context(fetchers_process([server.endpoint], THREADS))
            for _ in range(PROCESSES)
        ]
        assert [target.line() for target in targets] == ["ready"] * PROCESSES
        files_before = len(os.listdir("/proc/self/fd"))
        for target in targets:
            target.tell("go")
        timers = kill_some(targets, rng)
        ends = [target.line() for target in targets]
        for timer in timers:
            timer.join()
        assert ends.count(str(THREADS)) >= PROCESSES // 2, ends
        assert set(ends) <= {str(THREADS), None}
        deadline = time.monotonic() + FREED_WITHIN_SECONDS
        while (len(server.artifacts.leases) or sessions_of(server)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert (len(server.artifacts.leases), sessions_of(server)) == (0, 0)
        for target in targets:
            target.kill()
        # Listeners stay; connections and channels of 200 must be gone.
        while len(os.listdir("/proc/self/fd")) > files_before + 8 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(os.listdir("/proc/self/fd")) <= files_before + 8
        with fetchers_process([server.endpoint], 2) as target:
            assert target.line() == "ready"
            target.tell("go")
            assert target.line() == "2"
