"""A process that uses the library and ends normally leaves no record that says READY."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mx_artifacts.client.central import CentralClient
from mx_artifacts.client.worker import WorkerClient
from mx_artifacts.core.sources import SourceStatus
from mx_artifacts.server.app import ServerConfig
from tests.support.central import running_central
from tests.support.child import DEADLINE_SECONDS, Child
from tests.support.fleet import fill_cache


@pytest.fixture(name="server")
def _server() -> Iterator[str]:
    with running_central(ServerConfig(port=0)) as address:
        yield address


def library_process(server: str, directory: Path, how: str) -> Child:
    fill_cache(directory / "warm", files=3, file_bytes=1000)
    return Child([sys.executable, "-m", "tests.support.library_process", server, directory, how])


def status_of(server: str, found: dict[str, Any]) -> SourceStatus:
    with CentralClient(server) as client:
        stored = client.get_metadata(found["mx_source_id"], found["worker_id"])
    assert stored is not None
    return stored.record.status


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("at the end of its script", 0),
        ("by sys.exit", 3),
        ("with an error", 1),
        ("with a thread", 0),
        ("of multiprocessing", 0),
    ],
)
def test_its_records_are_stale(server: str, tmp_path: Path, how: str, code: int) -> None:
    with library_process(server, tmp_path, how) as process:
        ended, out = process.finish()
        assert ended == code, process.errors
    assert status_of(server, json.loads(out)) is SourceStatus.STALE


def test_a_target_that_is_attached_does_not_hold_it_up(server: str, tmp_path: Path) -> None:
    with library_process(server, tmp_path, "when told") as process:
        found = process.answer()
        assert status_of(server, found) is SourceStatus.READY
        with WorkerClient(found["endpoint"], timeout_seconds=DEADLINE_SECONDS) as target:
            assert target.attach()
            process.tell("end")
            assert process.wait() == 0
        assert status_of(server, found) is SourceStatus.STALE


def test_a_child_of_fork_forgets_what_is_its_parents(server: str, tmp_path: Path) -> None:
    with library_process(server, tmp_path, "after a child") as process:
        code, out = process.finish()
        assert code == 0, process.errors
    found, after_child = map(json.loads, out.splitlines())
    assert after_child == {"child": 0, "is_ready": True}
    assert status_of(server, found) is SourceStatus.STALE
