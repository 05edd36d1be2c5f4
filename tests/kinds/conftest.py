"""Which rows of the matrix a run plays, and what it leaves behind.

`--kinds NAMES` (make test-kinds) plays all cases of the named caches and writes what they came to.
Without it, a few cases of the light caches run as tests like any other.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kinds import rows
from tests.kinds.bench import Bench
from tests.kinds.caches import CACHES
from tests.kinds.cases import CASES
from tests.kinds.environments import chosen
from tests.support.nodes import clean_environment
from tests.support.processes import serving

PLAYED = pytest.StashKey[list[rows.Row]]()
SECONDS = {"small": 300, "full": 1800}
"""Bound of one case, its cold run included."""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[PLAYED] = []


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if {"bench", "case"} <= set(metafunc.fixturenames):
        names = metafunc.config.getoption("--kinds")
        seconds = SECONDS["full" if names else "small"]
        caches = chosen(names) if names else [cache for cache in CACHES if cache.small]
        cases = [case for case in CASES if names or case.small]
        metafunc.parametrize("case", [pytest.param(case, id=case.name) for case in cases])
        metafunc.parametrize(
            "bench",
            [
                pytest.param(cache, id=cache.name, marks=pytest.mark.timeout(seconds))
                for cache in caches
            ],
            indirect=True,
            scope="module",  # one cache after the other
        )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run one central server for all rows."""
    logs = tmp_path_factory.mktemp("server")
    with serving("serve", "--port", "0", env=clean_environment(logs), logs=logs) as service:
        yield service.ready["address"]


@pytest.fixture(scope="module")
def bench(
    request: pytest.FixtureRequest, server: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    cache = request.param
    directory = tmp_path_factory.mktemp(cache.kind)
    bench = Bench(cache, directory, server, small=not request.config.getoption("--kinds"))
    yield bench
    bench.close()


@pytest.fixture
def played(request: pytest.FixtureRequest) -> list[rows.Row]:
    """Return the rows until now, for a test to add its own."""
    return request.config.stash[PLAYED]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    played = config.stash[PLAYED]
    if played and config.getoption("--kinds"):
        rows.write(played)
        terminalreporter.section(f"real caches ({rows.RESULT})")
        for line in rows.table(played):
            terminalreporter.write_line(line)
