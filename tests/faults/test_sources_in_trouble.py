"""Sources that come and go, stall or forget their readers; a whole fleet in this process."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mx_artifacts.artifacts.target.source_finder import SourceFinder
from mx_artifacts.artifacts.target.suitability import SourceWanted
from mx_artifacts.core.ranges import Ranges
from mx_artifacts.errors import (
    MxArtifactsError,
    NoSpaceError,
    RegistrationError,
    TransferFailedError,
)
from mx_artifacts.observability.events import Event
from mx_artifacts.publisher import ArtifactPublisher
from mx_artifacts.transfer.artifact.fetch import fetch_artifact
from mx_artifacts.transfer.base import SourceAddress
from mx_artifacts.transfer.engine import TransferLimits
from mx_artifacts.transfer.timing import DEFAULT_TIMING, TransferTiming
from mx_artifacts.transport.base import DeviceMemory, Region
from mx_artifacts.transport.faults import Corrupt, Fault, LosePeer, Stall
from mx_artifacts.worker.extension_service import SourceService
from tests.support.artifacts import SOURCE_ID, make_artifact, new_agent, serving
from tests.support.fleet import Counting, Fleet, fill_cache, running_fleet
from tests.support.install_cases import contents, leftovers
from tests.support.received import TransferResult, fetch

LARGE_BYTES = 40 << 20
END_BYTES = 20 << 10
"""A bundle's end, which nobody reads."""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with running_fleet(tmp_path) as fleet:
        yield fleet


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return fill_cache(tmp_path / "warm", large=LARGE_BYTES)


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """Return what ends each session so far, at its source."""
    ends: list[Callable[[], None]] = []
    make = SourceService._ender

    def recording(
        self: SourceService, session_id: str, ended: threading.Event
    ) -> Callable[[], None]:
        ends.append(make(self, session_id, ended))
        return ends[-1]

    monkeypatch.setattr(SourceService, "_ender", recording)
    return ends


def agent_of(source: ArtifactPublisher) -> str:
    return source._transport.agent_name


def half_way(counting: Counting, act: Callable[[], object]) -> Callable[[Event], None]:
    """Return an event sink that calls `act` once, when half of the large file was read."""
    acted: list[bool] = []

    def sink(event: Event) -> None:
        read = sum(counting.bytes_from.values())
        if event.name == "transfer.span" and read > LARGE_BYTES // 2 and not acted:
            acted.append(True)
            act()

    return sink


@pytest.mark.parametrize("resident", [True, False], ids=["resident", "slots"])
def test_a_session_that_the_source_lost_is_opened_again(
    fleet: Fleet, cache: Path, tmp_path: Path, ends: list[Callable[[], None]], resident: bool
) -> None:
    """As it does when this node was stopped for longer than the source's keepalive takes."""
    fleet.publish(cache, resident_budget_bytes=1 << 30 if resident else 0)
    counting = Counting()
    sink = half_way(counting, lambda: [end() for end in list(ends)])
    fetched = fleet.fetch(fleet.fetcher(lambda: counting, sink), tmp_path / "cold")
    assert contents(tmp_path / "cold") == contents(cache)
    assert len(ends) == 2
    assert not fetched.left_behind


def test_memory_that_was_reused_is_not_a_fault_of_the_source(
    fleet: Fleet, cache: Path, tmp_path: Path, ends: list[Callable[[], None]]
) -> None:
    """The lease of a target that was stopped ran out, so what it reads may be anything."""
    source, _ = fleet.publish(cache)
    counting, leases = Counting(), source.start().artifacts.leases

    def expire() -> None:
        for entry in list(leases._entries.values()):
            leases.free_session(entry.session_id)
        counting.fault_of[agent_of(source)] = Corrupt(5)

    fetcher = fleet.fetcher(lambda: counting, half_way(counting, expire))
    make = SourceService._ender

    def recording(
        self: SourceService, session_id: str, ended: threading.Event
    ) -> Callable[[], None]:
        counting.fault_of.clear()
        return make(self, session_id, ended)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SourceService, "_ender", recording)
        fetched = fleet.fetch(fetcher, tmp_path / "cold")
    assert contents(tmp_path / "cold") == contents(cache)
    assert len(ends) == 2
    assert not fetched.left_behind


def test_a_source_is_found_again_at_its_old_address(
    fleet: Fleet, cache: Path, tmp_path: Path
) -> None:
    source, _ = fleet.publish(cache)
    counting, is_well = Counting(), threading.Event()

    def recover() -> None:
        is_well.set()
        counting.fault_of.clear()

    def lose() -> None:
        counting.fault_of[agent_of(source)] = LosePeer()
        threading.Timer(1.0, recover).start()

    fetcher = fleet.fetcher(lambda: counting, half_way(counting, lose))
    fetched = fleet.fetch(fetcher, tmp_path / "cold", wanted=SourceWanted(wait_seconds=30))
    assert contents(tmp_path / "cold") == contents(cache)
    assert is_well.is_set()
    assert not fetched.left_behind
    assert list(fetched.delivered) == [source.start().server.endpoint]


def test_a_look_for_sources_that_fails_in_an_unknown_way_ends_nothing(
    fleet: Fleet, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_arguments: object) -> None:
        raise RuntimeError("nobody has thought of this")

    monkeypatch.setattr(SourceFinder, "find_others", broken)
    bad, _ = fleet.publish(cache)
    good, _ = fleet.publish(cache)
    counting = Counting(pause_seconds=0.03)
    counting.fault_of[agent_of(bad)] = LosePeer()
    fleet.fetch(fleet.fetcher(lambda: counting), tmp_path / "cold")
    assert contents(tmp_path / "cold") == contents(cache)
    counting = Counting(pause_seconds=0.03)
    counting.fault_of = {agent_of(each): LosePeer() for each in (bad, good)}
    with pytest.raises(TransferFailedError, match="injected"):
        fleet.fetch(fleet.fetcher(lambda: counting), tmp_path / "colder")


def test_an_error_of_the_source_manager_itself_ends_the_transfer(
    fleet: Fleet, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_arguments: object) -> None:
        raise RuntimeError("a mistake of ours")

    fleet.publish(cache)
    monkeypatch.setattr(
        "mx_artifacts.transfer.source_manager.SourceManager._open_waiting", lambda _manager: None
    )
    monkeypatch.setattr("mx_artifacts.transfer.source_manager.SourceManager._is_stuck", broken)
    with pytest.raises(RuntimeError, match="mistake"):
        fleet.fetch(fleet.fetcher(lambda: Counting(pause_seconds=0.1)), tmp_path / "cold")


@pytest.mark.parametrize("calm_seconds", [0.0, 60.0])
def test_a_target_with_a_complete_source_does_not_search_for_others_at_once(
    fleet: Fleet,
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    calm_seconds: float,
) -> None:
    asked: list[object] = []

    def find_none(*asking: object) -> list[object]:
        asked.append(asking)
        return []

    monkeypatch.setattr(SourceFinder, "find_others", find_none)
    fleet.publish(cache)
    counting = Counting(pause_seconds=0.05)
    fetcher = fleet.fetcher(lambda: counting, timing=TransferTiming(calm=calm_seconds))
    fleet.fetch(fetcher, tmp_path / "cold")
    assert bool(asked) == (calm_seconds == 0)


def test_a_central_server_that_hangs_holds_up_no_end(
    fleet: Fleet, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_answer, asked, answered = threading.Event(), threading.Event(), threading.Event()

    def hang(*_arguments: object) -> list[SourceAddress]:
        asked.set()
        may_answer.wait(30)
        answered.set()
        return []

    monkeypatch.setattr(SourceFinder, "find_others", hang)
    fleet.publish(cache)
    counting = Counting(pause_seconds=0.05)
    fetcher = fleet.fetcher(lambda: counting, timing=TransferTiming(calm=0.0))
    try:
        fleet.fetch(fetcher, tmp_path / "cold")
        assert asked.is_set()
        assert not answered.is_set()
    finally:
        may_answer.set()
    assert contents(tmp_path / "cold") == contents(cache)


@pytest.mark.parametrize("turn", [1, -1], ids=["nobody first", "nobody last"])
def test_two_sources_at_one_endpoint_are_two_sources(turn: int) -> None:
    artifact = make_artifact({"artifact.tar": 40_000})
    agent = new_agent("target")
    with serving(artifact) as server:
        addresses = [SourceAddress(server.endpoint, each) for each in ("nobody", SOURCE_ID)]
        received = TransferResult()
        fetch_artifact(
            addresses[::turn], artifact.artifact_id, agent, received, TransferLimits(20, 2)
        )
        assert received.content == artifact.content
    agent.close()


def test_a_source_that_stalls_again_and_again_takes_no_more_buffers(
    fleet: Fleet, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, _ = fleet.publish(cache)
    fleet.publish(cache)
    counting = Counting(pause_seconds=0.1)
    posts: list[str] = []
    counting.fault_of[agent_of(bad)] = Stall()
    post_read = counting.post_read

    def noting(peer, source, target):  # type: ignore[no-untyped-def]
        posts.append(peer.name)
        return post_read(peer, source, target)

    monkeypatch.setattr(counting, "post_read", noting)
    fetcher = fleet.fetcher(
        lambda: counting,
        timing=TransferTiming(rest=0.05, min_stall=0.1),
        slots=2,
        timeout_seconds=60,
    )
    try:
        fleet.fetch(fetcher, tmp_path / "cold")
    finally:
        counting.let_go()
    assert contents(tmp_path / "cold") == contents(cache)
    assert 1 <= posts.count(agent_of(bad)) <= 2


def test_where_as_many_stall_as_are_read_from_others_are_tried(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = fill_cache(tmp_path / "warm")
    sources = [fleet.publish(cache)[0] for _ in range(6)]
    counting = Counting()
    for bad in sources[:5]:
        counting.fault_of[agent_of(bad)] = Stall()
    try:
        fetcher = fleet.fetcher(
            lambda: counting, timing=TransferTiming(min_stall=0.1), timeout_seconds=60
        )
        fetched = fleet.fetch(fetcher, tmp_path / "cold")
    finally:
        counting.let_go()
    assert contents(tmp_path / "cold") == contents(cache)
    assert not fetched.left_behind


def test_more_targets_than_sessions(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mx_artifacts.worker.artifact_service.MAX_SESSIONS", 2)
    cache = fill_cache(tmp_path / "warm")
    fleet.publish(cache)
    fetchers = [
        fleet.fetcher(lambda: Counting(pause_seconds=0.02), seed=number % 2 == 1)
        for number in range(6)
    ]
    with ThreadPoolExecutor(6) as pool:
        list(
            pool.map(
                lambda n: fleet.fetch(fetchers[n], tmp_path / f"cold{n}"), range(len(fetchers))
            )
        )
    assert all(contents(tmp_path / f"cold{n}") == contents(cache) for n in range(6))


def test_several_transfers_share_one_transport() -> None:
    artifacts = [make_artifact({"artifact.tar": 400_000 + n}) for n in range(4)]
    agent = new_agent("target")
    with (
        serving(artifacts[0]) as a,
        serving(artifacts[1]) as b,
        serving(artifacts[2]) as c,
        serving(artifacts[3]) as d,
        ThreadPoolExecutor(8) as pool,
    ):
        servers = [a, b, c, d]
        jobs = [
            pool.submit(fetch, servers[n % 4].endpoint, artifacts[n % 4].artifact_id, agent)
            for n in range(16)
        ]
        for number, job in enumerate(jobs):
            assert job.result().content == artifacts[number % 4].content
    assert not agent._regions
    agent.close()


class TwoSeeds:
    """Two targets that serve on, and the source from which they read at first."""

    def __init__(
        self, fleet: Fleet, cache: Path, place: Path, timing: TransferTiming = DEFAULT_TIMING
    ) -> None:
        self.origin, self.published = fleet.publish(cache)
        self._fleet, self._place = fleet, place
        self.countings = [Counting(pause_seconds=0.15) for _ in range(2)]
        self.fetchers = [
            fleet.fetcher(
                lambda counting=counting: counting,  # type: ignore[misc]
                timing=timing,
                seed=True,
                slots=1,
                bundle_root=place / f"turns{number}",
            )
            for number, counting in enumerate(self.countings)
        ]
        self._pool = ThreadPoolExecutor(2)
        self.jobs = [self._pool.submit(self.fetch, n) for n in range(2)]

    def fetch(self, number: int) -> object:
        return self._fleet.fetch(self.fetchers[number], self._place / f"cold{number}")

    def have(self) -> list[int]:
        """Return how many bytes each has, and both together."""
        found: list[Ranges] = []
        for fetcher in self.fetchers:
            seeds = fetcher._seeds._seeds.values()
            parts = [seed._growing.available() for seed in list(seeds)]
            assert None not in parts, "it was to be stopped before"
            found.append(Ranges(each for part in parts if part for each in part[0]))
        both = Ranges([*found[0], *found[1]])
        return [sum(end - start for start, end in ranges) for ranges in (*found, both)]

    def lose_origin(self) -> None:
        fault: Fault = LosePeer()
        for counting in self.countings:
            counting.fault_of[agent_of(self.origin)] = fault
        self.origin.start().server.stop(0)

    def errors(self) -> list[BaseException | None]:
        errors = [job.exception(60) for job in self.jobs]
        self._pool.shutdown()
        return errors


def test_seeds_that_have_all_together_finish_from_each_other(
    fleet: Fleet, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = itertools.count()

    class FromEitherEnd(random.Random):
        def shuffle(self, spans: Any) -> None:
            if next(turns) % 2:
                spans.reverse()

    monkeypatch.setattr(random, "Random", FromEitherEnd)
    seeds = TwoSeeds(fleet, cache, tmp_path)
    total = seeds.published.total_bytes
    while seeds.have()[2] < total - END_BYTES:
        time.sleep(0.01)
    before = seeds.have()
    seeds.lose_origin()
    assert seeds.errors() == [None, None]
    assert max(before[:2]) < total - END_BYTES
    assert all(contents(tmp_path / f"cold{n}") == contents(cache) for n in range(2))


def test_seeds_that_lack_the_same_say_so_and_keep_what_they_have(
    fleet: Fleet, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = TwoSeeds(fleet, cache, tmp_path, TransferTiming(stuck=1.0))
    while min(seeds.have()) < LARGE_BYTES // 5:
        time.sleep(0.05)
    endpoint = seeds.origin.start().server.endpoint
    seeds.lose_origin()
    errors = seeds.errors()
    assert all(isinstance(error, MxArtifactsError) for error in errors), errors
    assert all(endpoint in str(error) and "parts" in str(error) for error in errors)
    assert any("lack the rest" in str(error) for error in errors)
    fleet.publish(cache)
    for number, counting in enumerate(seeds.countings):
        counting.pause_seconds = 0.0
        assert not (tmp_path / f"cold{number}").exists()
        seeds.fetch(number)
        assert contents(tmp_path / f"cold{number}") == contents(cache)


def test_a_target_without_memory_blames_no_source(fleet: Fleet, tmp_path: Path) -> None:
    fleet.publish(fill_cache(tmp_path / "warm"))
    counting, events = Counting(), list[Event]()

    def refuse(memory: memoryview | DeviceMemory) -> Region:
        raise RegistrationError("no memory (injected)")

    counting.register = refuse  # type: ignore[method-assign]
    with pytest.raises(RegistrationError, match="injected"):
        fleet.fetch(fleet.fetcher(lambda: counting, events.append), tmp_path / "cold")
    assert "transfer.source_failed" not in {event.name for event in events}
    assert leftovers(tmp_path / "cold") == []


def test_a_target_without_space_blames_no_source(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.publish(fill_cache(tmp_path / "warm"))
    events = list[Event]()

    def fill_up(*_arguments: object) -> None:
        raise NoSpaceError("the disk is full (injected)")

    monkeypatch.setattr("mx_artifacts.install.staging.staging.Staging.write_span", fill_up)
    with pytest.raises(NoSpaceError, match="injected"):
        fleet.fetch(fleet.fetcher(events=events.append), tmp_path / "cold")
    assert "transfer.source_failed" not in {event.name for event in events}
    assert leftovers(tmp_path / "cold") == []


def test_a_seed_whose_turn_never_comes_reads_like_any_other(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mx_artifacts.worker.extension_service.MAX_LEASES_SERVED_ON", 0)
    cache = fill_cache(tmp_path / "warm")
    fleet.publish(cache)
    fleet.fetch(
        fleet.fetcher(timing=TransferTiming(busy=0.5), seed=True, timeout_seconds=60),
        tmp_path / "cold",
    )
    assert contents(tmp_path / "cold") == contents(cache)
