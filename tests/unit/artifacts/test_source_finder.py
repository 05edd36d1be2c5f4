"""Waiting for sources, finding others of one artifact, and what is new. The clock is the test's."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from mx_artifacts.artifacts.labels import ARTIFACT_LABEL
from mx_artifacts.artifacts.protocol import ArtifactSourceEndpoint
from mx_artifacts.artifacts.target import source_finder
from mx_artifacts.artifacts.target.source_finder import MAX_SOURCES_TRIED, SeenSources, SourceFinder
from mx_artifacts.artifacts.target.suitability import SourceWanted
from mx_artifacts.client.central import CentralClient
from mx_artifacts.core.identity import SourceIdentity
from mx_artifacts.core.sources import (
    ArtifactSummary,
    SourceQuery,
    SourceRef,
    SourceStatus,
    StoredWorker,
    WorkerRecord,
)
from mx_artifacts.errors import (
    BackendUnavailableError,
    IncompatibleSourceError,
    MxArtifactsError,
    NoSourceError,
    RemoteError,
)
from mx_artifacts.observability.catalogue import DiscoveryWaiting
from mx_artifacts.observability.events import Event
from mx_artifacts.runtime.clock import FakeClock
from mx_artifacts.transfer.base import SourceAddress

HERE = SourceIdentity(model_name="here")
OTHER = SourceIdentity(model_name="other")
READY, INITIALIZING = SourceStatus.READY, SourceStatus.INITIALIZING


class Server:
    """Lists records, and counts what it is asked for."""

    def __init__(self) -> None:
        self.records: list[StoredWorker] = []
        self.unreadable: set[str] = set()
        self.reads: list[str] = []
        self.has_labels = True

    def add(self, worker_id: str, artifact_id: str = "a", status: SourceStatus = READY) -> None:
        summary = ArtifactSummary(artifact_id, 10, 1, 1)
        record = WorkerRecord(
            status=status, worker_grpc_endpoint=f"{worker_id}:1", artifact=summary
        )
        self.records.append(StoredWorker("s", worker_id, HERE, record))

    def list_sources(self, query: SourceQuery, identity: SourceIdentity) -> list[SourceRef]:
        return [
            SourceRef(
                each.mx_source_id,
                each.worker_id,
                "here",
                0,
                topology={ARTIFACT_LABEL: each.record.artifact.artifact_id}
                if self.has_labels and each.record.artifact is not None
                else {},
            )
            for each in self.records
            if query.status in (None, each.record.status)
        ]

    def get_metadata(self, mx_source_id: str, worker_id: str) -> StoredWorker | None:
        self.reads.append(worker_id)
        if worker_id in self.unreadable:
            raise RemoteError("damaged")
        return next((each for each in self.records if each.worker_id == worker_id), None)


class World:
    def __init__(self, state: Path) -> None:
        self.server = Server()
        self.clock = FakeClock(0.0)
        self.events: list[Event] = []
        self.finder = SourceFinder(
            cast(CentralClient, self.server), list, state, self.clock, self.events.append
        )
        self.looked_at: list[float] = []
        self.answer: Callable[[SourceIdentity], Sequence[ArtifactSourceEndpoint]] = (
            lambda identity: ()
        )

    def candidates(self, _client: object, target: Any, **options: Any) -> Iterator[Any]:
        self.looked_at.append(self.clock.monotonic())
        order = options["order"]
        if order is not self.finder.order:
            order([SourceRef("s", "w", "here", 0)])
        return iter(self.answer(target.identity))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path)
    monkeypatch.setattr(source_finder, "candidate_sources", world.candidates)
    return world


def endpoint(worker_id: str, artifact_id: str = "a") -> ArtifactSourceEndpoint:
    return ArtifactSourceEndpoint("s", worker_id, 0, f"{worker_id}:1", artifact_id, 10)


def raising(error: MxArtifactsError) -> Callable[[SourceIdentity], Any]:
    def answer(_identity: SourceIdentity) -> Any:
        raise error

    return answer


# --- find ----------------------------------------------------------------------------------------


def test_what_is_there_is_returned_at_once(world: World) -> None:
    world.answer = lambda _identity: [endpoint("w")]
    assert world.finder.find(HERE, SourceWanted(wait_seconds=60)) == [endpoint("w")]
    assert world.clock.monotonic() == 0.0
    assert world.events == []


def test_it_asks_less_and_less_often_until_its_time_is_over(world: World) -> None:
    error = NoSourceError("nobody")
    world.answer = raising(error)
    with pytest.raises(NoSourceError) as caught:
        world.finder.find(HERE, SourceWanted(wait_seconds=8.0))
    assert caught.value is error
    assert world.looked_at == [0.0, 0.25, 0.75, 1.75, 3.75, 5.75, 7.75, 8.0]
    assert world.events[0] == DiscoveryWaiting(error, 8.0)
    assert world.events[-1] == DiscoveryWaiting(error, 0.25)


def test_without_time_it_asks_once(world: World) -> None:
    world.answer = raising(NoSourceError("nobody"))
    with pytest.raises(NoSourceError):
        world.finder.find(HERE)
    assert world.looked_at == [0.0]
    assert world.events == []


@pytest.mark.parametrize(
    "error", [BackendUnavailableError("down"), IncompatibleSourceError("other")]
)
def test_what_may_change_is_waited_for(world: World, error: MxArtifactsError) -> None:
    answers: list[Callable[[SourceIdentity], list[ArtifactSourceEndpoint]]] = [
        raising(error),
        raising(error),
        lambda _identity: [endpoint("w")],
    ]
    world.answer = lambda identity: answers.pop(0)(identity)
    assert world.finder.find(HERE, SourceWanted(wait_seconds=60)) == [endpoint("w")]


def test_what_will_not_change_is_raised_at_once(world: World) -> None:
    world.answer = raising(RemoteError("no ModelExpress server"))
    with pytest.raises(RemoteError):
        world.finder.find(HERE, SourceWanted(wait_seconds=60))
    assert world.looked_at == [0.0]


def test_no_more_sources_are_asked_than_may_be_tried(world: World) -> None:
    taken: list[int] = []

    def many(_identity: SourceIdentity) -> Iterator[ArtifactSourceEndpoint]:
        for number in range(1000):
            taken.append(number)
            yield endpoint(f"w{number}")

    world.answer = many  # type: ignore[assignment]
    assert len(world.finder.find(HERE)) == MAX_SOURCES_TRIED
    assert len(taken) <= MAX_SOURCES_TRIED + 1


# --- others of one artifact ----------------------------------------------------------------------


def found(world: World, seen: SeenSources | None = None) -> list[str]:
    seen = {} if seen is None else seen
    return sorted(each.endpoint for each in world.finder.find_others(HERE, "a", seen))


def test_who_serves_the_artifact_or_receives_it_is_found(world: World) -> None:
    world.server.add("ready")
    world.server.add("receiving", status=INITIALIZING)
    world.server.add("stale", status=SourceStatus.STALE)
    world.server.add("other", artifact_id="b")
    assert found(world) == ["ready:1", "receiving:1"]
    assert "other" not in world.server.reads, "its label says enough"


def test_sources_without_a_label_are_read(world: World) -> None:
    world.server.has_labels = False
    world.server.add("ours")
    world.server.add("other", artifact_id="b")
    assert found(world) == ["ours:1"]
    assert sorted(world.server.reads) == ["other", "ours"]


def test_a_record_is_read_once(world: World) -> None:
    world.server.add("w")
    seen: SeenSources = {}
    assert found(world, seen) == found(world, seen) == ["w:1"]
    assert world.server.reads == ["w"]
    assert list(seen.values()) == [SourceAddress("w:1", "s")]


def test_one_that_cannot_be_read_or_went_stale_is_asked_again_the_next_time(
    world: World,
) -> None:
    world.server.add("w")
    seen: SeenSources = {}
    world.server.unreadable = {"w"}
    assert found(world, seen) == []
    world.server.unreadable = set()
    listed = world.server.records[0]
    world.server.records[0] = replace(
        listed, record=replace(listed.record, status=SourceStatus.STALE)
    )
    world.server.list_sources = lambda query, identity: [  # type: ignore[method-assign]
        SourceRef("s", "w", "here", 0)  # as it was a moment ago
    ]
    assert found(world, seen) == []
    world.server.records[0] = listed
    assert found(world, seen) == ["w:1"]


def test_of_many_it_looks_at_the_first_and_at_some_of_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(100):
        world.server.add(f"w{number:02}")
    monkeypatch.setattr(random, "sample", lambda rest, count: list(rest)[-count:])
    half = MAX_SOURCES_TRIED // 2
    names = [f"w{number:02}" for number in (*range(half), *range(100 - half, 100))]
    assert found(world) == [f"{name}:1" for name in names]
    assert world.server.reads == names


def test_fewer_than_that_are_all_looked_at(world: World) -> None:
    for number in range(MAX_SOURCES_TRIED):
        world.server.add(f"w{number}")
    assert len(found(world)) == MAX_SOURCES_TRIED


# --- some of several kinds -----------------------------------------------------------------------


def test_it_waits_until_no_more_kinds_are_served_than_before(world: World) -> None:
    third = SourceIdentity(model_name="third")
    served_from = {HERE: 3.0, OTHER: 4.0, third: 99.0}

    def answer(identity: SourceIdentity) -> list[ArtifactSourceEndpoint]:
        return [endpoint("w")] if world.clock.monotonic() >= served_from[identity] else []

    world.answer = answer
    world.finder.wait_for_some([HERE, OTHER, third], 60.0)
    assert world.clock.monotonic() == 5.0, "one more look after the last that was new"
    assert {type(event) for event in world.events} == {DiscoveryWaiting}
    assert len(world.events) == 3


def test_it_waits_no_longer_when_all_are_served(world: World) -> None:
    world.answer = lambda _identity: [endpoint("w")]
    world.finder.wait_for_some([HERE, OTHER], 60.0)
    assert world.clock.monotonic() == 0.0


@pytest.mark.parametrize("error", [NoSourceError("nobody"), BackendUnavailableError("down")])
def test_it_returns_when_its_time_is_over_whatever_is_there(
    world: World, error: MxArtifactsError
) -> None:
    world.answer = raising(error)
    world.finder.wait_for_some([HERE], 2.5)
    assert world.clock.monotonic() == 2.5


# --- what is new ---------------------------------------------------------------------------------


def test_where_nothing_is_new_one_call_tells_so(world: World) -> None:
    world.server.add("w", artifact_id="known")
    assert world.finder.newest_besides({"known"}, HERE) is None
    assert world.looked_at == []


def test_the_first_that_is_new_is_returned(world: World) -> None:
    world.server.add("w", artifact_id="new")
    world.answer = lambda _identity: [endpoint("w1", "known"), endpoint("w2", "new")]
    assert world.finder.newest_besides({"known"}, HERE) == endpoint("w2", "new")


def test_one_that_went_away_meanwhile_is_none(world: World) -> None:
    world.server.add("w", artifact_id="new")
    world.answer = raising(NoSourceError("gone"))
    assert world.finder.newest_besides({"known"}, HERE) is None


def test_something_new_that_does_not_fit_is_told(world: World) -> None:
    world.server.add("w", artifact_id="new")
    world.answer = raising(IncompatibleSourceError("other"))
    with pytest.raises(IncompatibleSourceError):
        world.finder.newest_besides({"known"}, HERE)
