"""A command in a container with too few threads or files ends soon, and names the limit."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.nodes import Cluster, warm_cache
from tests.support.processes import COMMAND, last_object

HANGS_SECONDS = 60.0
"""Only a failing test waits for it."""


@pytest.fixture(name="few_threads")
def _few_threads() -> Iterator[Callable[[], None]]:
    """Return what moves a child into a cgroup that allows eight threads."""
    base = Path("/sys/fs/cgroup")
    group = (base / "pids" if (base / "pids").is_dir() else base) / f"mx-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "pids.max").write_text("8")
    except OSError as error:
        if group.is_dir():
            group.rmdir()
        pytest.skip(f"no cgroup that limits threads can be made here: {error}")

    def enter() -> None:
        (group / "cgroup.procs").write_text(str(os.getpid()))

    yield enter
    group.rmdir()


def few_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (14, 14))


def fetch(cluster: Cluster, root: Path, limit: Callable[[], None]) -> Any:
    """Return the error of a fetch under a limit."""
    done = subprocess.run(
        [*COMMAND, *cluster.target_args(root), "--format", "json"],
        env=dict(cluster.env),
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_SECONDS,
        preexec_fn=limit,
    )
    assert done.returncode, done.stdout
    return last_object(done.stderr)


def test_too_few_threads_are_named(
    cluster: Cluster, tmp_path: Path, few_threads: Callable[[], None]
) -> None:
    with cluster.source(warm_cache(tmp_path / "warm")):
        error = fetch(cluster, tmp_path / "cold", few_threads)
    assert "cannot start another thread" in error["message"]
    assert "pids.max" in error["hint"]
    assert not (tmp_path / "cold").exists()


def test_too_few_files_are_named(cluster: Cluster, tmp_path: Path) -> None:
    with cluster.source(warm_cache(tmp_path / "warm", files=40)):
        error = fetch(cluster, tmp_path / "cold", few_files)
    assert "ulimit -n" in error["hint"], error
    assert not (tmp_path / "cold").exists()
