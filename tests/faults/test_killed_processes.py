"""kill -9 of real processes that transfer, over each transport that crosses processes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mx_artifacts.errors import PeerLostError
from mx_artifacts.observability.events import Event
from mx_artifacts.transport.base import Transport
from mx_artifacts.transport.faults import FaultyTransport, Stall
from tests.support.artifacts import serving
from tests.support.received import fetch
from tests.support.transfer_process import (
    CHUNKS,
    new_network_agent,
    same_artifact,
    transfer_process,
)


@pytest.fixture(params=["stream", "nixl"])
def agent(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Transport]:
    monkeypatch.setenv("TEST_TRANSPORT", request.param)
    agent = new_network_agent("target")
    yield agent
    agent.close()


def test_a_killed_target_frees_its_slot_at_once(tmp_path: Path, agent: Transport) -> None:
    """Its lease would last for an hour, and there is no other slot."""
    artifact = same_artifact()
    with (
        serving(
            artifact,
            slots=1,
            transport=new_network_agent("source"),
            lease_ttl_seconds=3600,
        ) as server,
        transfer_process("target", server.endpoint, str(tmp_path / "killed"), "3") as target,
        ThreadPoolExecutor(1) as threads,
    ):
        assert target.answer() == {"stalled": True}
        other = threads.submit(
            fetch, server.endpoint, artifact.artifact_id, agent, timeout_seconds=120
        )
        assert len(server.artifacts.leases) == 1
        target.kill()
        received = other.result()
    assert received.content == artifact.content


@pytest.mark.parametrize("stalled", [False, True], ids=["between reads", "in a stalled read"])
def test_a_killed_source_is_a_clear_error_with_nothing_left(
    tmp_path: Path, agent: Transport, stalled: bool
) -> None:
    """Long before the deadline, and also when a read of it never ends."""
    artifact = same_artifact()
    transport = FaultyTransport(agent, {3: Stall()} if stalled else {})
    arrived, killed = threading.Semaphore(0), threading.Event()

    def wait_for_the_kill(event: Event) -> None:
        if event.name == "transfer.span":
            arrived.release()
            if not stalled:
                killed.wait()

    with (
        transfer_process("source", str(tmp_path / "source")) as source,
        ThreadPoolExecutor(1) as threads,
    ):
        endpoint = source.answer()["endpoint"]
        fetching = threads.submit(
            fetch,
            endpoint,
            artifact.artifact_id,
            transport,
            timeout_seconds=600,
            max_inflight_chunks=1,
            events=wait_for_the_kill,
        )
        for _ in range(2 if stalled else 1):
            assert arrived.acquire(timeout=60)
        source.kill()
        killed.set()
        with pytest.raises(PeerLostError, match=rf"{endpoint}.* of {CHUNKS} parts"):
            fetching.result()
    transport.let_go()
