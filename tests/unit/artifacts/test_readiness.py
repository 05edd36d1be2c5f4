"""Waiting for an engine and for its caches before they are sealed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mx_artifacts.artifacts.source.readiness import (
    health_url,
    signature_of,
    wait_until_ready,
    wait_until_settled,
)
from mx_artifacts.bundle.rules import PackRules
from mx_artifacts.errors import (
    ConfigurationError,
    EngineNotReadyError,
    NothingToPublishError,
    SourceChangedError,
)
from mx_artifacts.runtime.clock import FakeClock
from tests.support.engine import Engine, running_engine

RULES = PackRules(exclude=("*.lock",))


@pytest.fixture(name="engine")
def _engine() -> Iterator[Engine]:
    with running_engine() as engine:
        yield engine


class ScriptedClock(FakeClock):
    """Calls `at_sleep` with the number of each sleep."""

    def __init__(self, at_sleep: Callable[[int], object] = lambda number: None) -> None:
        super().__init__()
        self.start = self.now()
        self.sleeps = 0
        self._at_sleep = at_sleep

    @property
    def slept_seconds(self) -> float:
        return self.now() - self.start

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        super().sleep(seconds)
        self._at_sleep(self.sleeps)
        self.sleeps += 1


# --- the engine ----------------------------------------------------------------------------------


def test_an_engine_that_is_ready_is_not_waited_for(engine: Engine) -> None:
    clock = ScriptedClock()
    wait_until_ready(engine.url, timeout_seconds=60, clock=clock)
    assert (clock.sleeps, engine.paths) == (0, ["/health"])


def test_it_is_polled_until_it_is_ready(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # proxies know nothing of this node
    engine.statuses = [503, 404, 500, 204]
    clock = ScriptedClock()
    wait_until_ready(engine.url, timeout_seconds=60, clock=clock)
    assert clock.slept_seconds == 6.0


def test_an_engine_that_stays_unready_is_an_error_that_says_what_it_answers(
    engine: Engine,
) -> None:
    engine.statuses = [503]
    clock = ScriptedClock()
    with pytest.raises(EngineNotReadyError, match=r"after 31 s: .* answers with status 503") as e:
        wait_until_ready(engine.url, timeout_seconds=31, clock=clock)
    assert e.value.retryable
    assert clock.slept_seconds == 31.0


def test_an_engine_that_is_not_there(engine: Engine) -> None:
    port = engine.server.server_port
    with pytest.raises(EngineNotReadyError, match=r"does not answer \(.*refused\)"):
        # The port after an ephemeral one that we hold could be anyone's; port 1 is nobody's.
        wait_until_ready(
            engine.url.replace(str(port), "1"), timeout_seconds=5, clock=ScriptedClock()
        )


@pytest.mark.parametrize(
    ("url", "node_rank", "head", "expected"),
    [
        ("http://127.0.0.1:8000/health", 0, "", "http://127.0.0.1:8000/health"),
        ("http://127.0.0.1:8000/health", 0, "head", "http://127.0.0.1:8000/health"),
        ("http://127.0.0.1:8000/health", 1, "head", "http://head:8000/health"),
        ("http://localhost:30000/health?x=1", 2, "10.0.0.7", "http://10.0.0.7:30000/health?x=1"),
        ("https://[::1]/health", 1, "fd00::1", "https://[fd00::1]/health"),
        ("http://0.0.0.0:8000/health", 1, "[fd00::1]", "http://[fd00::1]:8000/health"),
        ("http://engine:8000/health", 1, "head", "http://engine:8000/health"),
        ("http://engine:8000/health", 1, "", "http://engine:8000/health"),
    ],
)
def test_the_url_on_a_node(url: str, node_rank: int, head: str, expected: str) -> None:
    assert health_url(url, node_rank=node_rank, head_address=head) == expected


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000/health", "file:///etc/passwd", "http://", "http://[::1", "http://x:y/"]
)
def test_an_invalid_health_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="health URL"):
        health_url(url)


def test_another_node_must_know_the_head() -> None:
    with pytest.raises(ConfigurationError, match="node 3") as raised:
        health_url("http://localhost:8000/health", node_rank=3)
    assert "--head-address" in raised.value.hint()


# --- the caches ----------------------------------------------------------------------------------


def test_a_signature_is_of_what_is_shipped(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"123")
    (tmp_path / "a.lock").write_bytes(b"1")
    found = signature_of([(tmp_path, RULES), (tmp_path / "absent", RULES)])
    assert (found.file_count, found.content_bytes) == (1, 3)
    assert found.newest_mtime_ns == (tmp_path / "a").stat().st_mtime_ns


def test_it_waits_until_nothing_changed_for_so_long(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")

    def compile_now_and_then(number: int) -> None:
        if number in (2, 5):
            (tmp_path / f"kernel{number}").write_bytes(b"1")
        (tmp_path / "x.lock").write_bytes(bytes(number))

    clock = ScriptedClock(compile_now_and_then)
    found = wait_until_settled(
        [(tmp_path, RULES)], settle_seconds=10, timeout_seconds=600, clock=clock
    )
    assert found.file_count == 3
    assert clock.slept_seconds == 12.0 + 10.0  # six sleeps of two seconds, then ten quiet ones


def test_it_waits_for_the_first_file(tmp_path: Path) -> None:
    root = tmp_path / "root"

    def start(number: int) -> None:
        if number == 9:
            root.mkdir()
            (root / "a").write_bytes(b"1")

    clock = ScriptedClock(start)
    found = wait_until_settled([(root, RULES)], settle_seconds=1, timeout_seconds=600, clock=clock)
    assert found.file_count == 1


def test_roots_that_never_settle_are_an_error(tmp_path: Path) -> None:
    clock = ScriptedClock(lambda number: (tmp_path / f"k{number}").write_bytes(b"1"))
    with pytest.raises(SourceChangedError, match="did not stay as they were for 30 s"):
        wait_until_settled([(tmp_path, RULES)], settle_seconds=30, timeout_seconds=60, clock=clock)
    assert clock.slept_seconds == 60.0


def test_roots_that_stay_empty_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(NothingToPublishError, match=r"no files in .* after 60 s"):
        wait_until_settled(
            [(tmp_path, RULES)], settle_seconds=5, timeout_seconds=60, clock=ScriptedClock()
        )
