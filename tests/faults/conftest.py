"""One central server for all fault tests that go through the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.nodes import Cluster, clean_environment, warm_cache
from tests.support.processes import serving


@pytest.fixture(scope="session")
def server_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    logs = tmp_path_factory.mktemp("server")
    with serving("serve", "--port", "0", env=clean_environment(logs), logs=logs) as server:
        yield server.ready["address"]


@pytest.fixture
def cluster(tmp_path: Path, server_address: str, request: pytest.FixtureRequest) -> Cluster:
    env = clean_environment(tmp_path / "home") | {"MX_SERVER_ADDRESS": server_address}
    return Cluster(tmp_path, env, model=request.node.nodeid)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Return a small warm cache."""
    return warm_cache(tmp_path / "warm")
