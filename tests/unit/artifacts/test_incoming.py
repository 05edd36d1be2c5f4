"""An artifact from several sources: which failures end a fetch, and which go on to the next one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from mx_artifacts.artifacts.protocol import ArtifactSourceEndpoint
from mx_artifacts.artifacts.target import incoming as incoming_module
from mx_artifacts.artifacts.target.incoming import IncomingArtifact
from mx_artifacts.core.identity import SourceType
from mx_artifacts.errors import (
    BundleError,
    ChunkChecksumError,
    ConfigurationError,
    InstallError,
    MxArtifactsError,
    NoSpaceError,
    PeerLostError,
    RegistrationError,
    TransferFailedError,
    TransportUnavailableError,
)
from mx_artifacts.observability.events import ignore_events
from mx_artifacts.runtime.clock import FakeClock
from mx_artifacts.transfer.artifact.fetch import TransferResult
from mx_artifacts.transfer.base import SourceAddress
from mx_artifacts.transfer.engine import TransferLimits
from mx_artifacts.transfer.source_manager import MAX_SOURCES
from mx_artifacts.transport.base import Transport
from tests.support.artifacts import make_artifact

MANIFEST = make_artifact({"a.tar": 1}).manifest
OURS = [
    ConfigurationError("two roots are one"),
    NoSpaceError("full"),
    InstallError("refused"),
    RegistrationError("no memory"),
    TransportUnavailableError("no libraries"),
]
THEIRS = [PeerLostError("gone"), ChunkChecksumError("wrong bytes"), BundleError("no bundle")]


class Receiver:
    """Stands in for a `RootReceiver`; notes how it was closed."""

    def __init__(self, log: list[Any]) -> None:
        self.stagings: tuple[Any, ...] = ("staging",)
        self._log = log

    def close(self, *, keep: bool = False) -> None:
        self._log.append(f"closed, kept: {keep}")


@dataclass
class Fetch:
    """One call of `fetch_artifact`."""

    sources: list[SourceAddress]
    artifact_id: str
    limits: TransferLimits
    find_more: Callable[[], list[SourceAddress]]


@dataclass
class World:
    clock: FakeClock
    fetches: list[Fetch] = field(default_factory=list)
    receivers: list[Any] = field(default_factory=list)
    answers: dict[str, Callable[[Fetch], TransferResult]] = field(default_factory=dict)

    def fetch(
        self,
        sources: list[SourceAddress],
        artifact_id: str,
        _transport: object,
        _receiver: object,
        limits: TransferLimits,
        **options: Any,
    ) -> TransferResult:
        fetch = Fetch(sources, artifact_id, limits, options["find_more"])
        self.fetches.append(fetch)
        return self.answers[artifact_id](fetch)

    def incoming(self) -> IncomingArtifact:
        limits = TransferLimits(timeout_seconds=60.0, max_inflight=1)
        transport = cast(Transport, None)
        return IncomingArtifact(
            "triton", SourceType.TRITON_CACHE, (), transport, limits, ignore_events
        )


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(FakeClock())
    monkeypatch.setattr(incoming_module, "fetch_artifact", world.fetch)
    monkeypatch.setattr(
        incoming_module, "RootReceiver", lambda _wanted, _type: Receiver(world.receivers)
    )
    monkeypatch.setattr(incoming_module, "SYSTEM_CLOCK", world.clock)
    return world


def source(name: str, artifact_id: str) -> ArtifactSourceEndpoint:
    return ArtifactSourceEndpoint("s", name, 0, f"{name}:1", artifact_id, 10)


A1, A2, B = source("a1", "A"), source("a2", "A"), source("b", "B")


def delivered(fetch: Fetch) -> TransferResult:
    first = fetch.sources[0]
    return TransferResult(MANIFEST, first, 1, {first.endpoint: 1}, {}, {first.endpoint: "stream"})


def failing(error: BaseException) -> Callable[[Fetch], TransferResult]:
    def answer(_fetch: Fetch) -> TransferResult:
        raise error

    return answer


# --- one artifact --------------------------------------------------------------------------------


def test_what_came_is_staged_and_told_with_its_source(world: World) -> None:
    world.answers = {"A": delivered}
    staged = world.incoming().from_sources([A1, A2])
    assert staged.source.worker_id == "a1"
    assert staged.source.artifact_id == MANIFEST.artifact_id, "as it hashes, whatever was asked"
    assert world.fetches[0].sources == [SourceAddress("a1:1", "s"), SourceAddress("a2:1", "s")]
    assert world.receivers == [], "it is the caller's now"


@pytest.mark.parametrize(
    ("error", "is_kept"),
    [
        *((error, False) for error in OURS),
        (PeerLostError("gone"), True),
        (ChunkChecksumError("wrong bytes"), True),
        (TransferFailedError("all failed", attempts=[]), True),
        (BundleError("no bundle"), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_what_verified_is_kept_for_the_next_fetch_if_the_sources_failed(
    world: World, error: BaseException, is_kept: bool
) -> None:
    world.answers = {"A": failing(error)}
    with pytest.raises(type(error)) as caught:
        world.incoming().from_sources([A1])
    assert caught.value is error
    assert world.receivers == [f"closed, kept: {is_kept}"]


# --- any artifact --------------------------------------------------------------------------------


@pytest.mark.parametrize("error", THEIRS)
def test_where_all_sources_of_one_artifact_fail_the_next_is_fetched(
    world: World, error: MxArtifactsError
) -> None:
    world.answers = {"A": failing(error), "B": delivered}
    assert world.incoming().from_any([A1, B, A2]).source.worker_id == "b"
    assert [fetch.artifact_id for fetch in world.fetches] == ["A", "B"]
    assert len(world.fetches[0].sources) == 2, "all who serve the first artifact"


@pytest.mark.parametrize("error", OURS)
def test_what_is_this_node_s_fault_ends_it(world: World, error: MxArtifactsError) -> None:
    world.answers = {"A": failing(error), "B": delivered}
    with pytest.raises(type(error)) as caught:
        world.incoming().from_any([A1, B])
    assert caught.value is error
    assert len(world.fetches) == 1


def test_where_all_fail_each_is_named_with_its_cause(world: World) -> None:
    lost, wrong = PeerLostError("gone"), ChunkChecksumError("wrong bytes")
    several = TransferFailedError("two failed", attempts=[("a1:1", lost), ("a2:1", wrong)])
    world.answers = {"A": failing(several), "B": failing(wrong)}
    with pytest.raises(
        TransferFailedError, match=r"triton cache: a1:1: gone; a2:1: .*; b:1: "
    ) as e:
        world.incoming().from_any([A1, A2, B])
    assert list(e.value.attempts) == [("a1:1", lost), ("a2:1", wrong), ("b:1", wrong)]


def test_without_candidates_nothing_is_asked(world: World) -> None:
    with pytest.raises(TransferFailedError, match="no source delivered the triton cache"):
        world.incoming().from_any([])
    assert world.fetches == []


def test_each_artifact_has_the_time_of_one_transfer_in_all(world: World) -> None:
    """Further sources of an artifact get what the first ones have left of it."""

    def slow(fetch: Fetch) -> TransferResult:
        world.clock.advance(25.0)
        raise PeerLostError("gone")

    world.answers = {"A": slow, "B": slow}
    many = [source(f"a{n}", "A") for n in range(2 * MAX_SOURCES)]
    candidates = iter([*many, B])  # not a sequence: taken as they are needed
    with pytest.raises(TransferFailedError):
        world.incoming().from_any(candidates)
    assert [(f.artifact_id, f.limits.timeout_seconds) for f in world.fetches] == [
        ("A", 60.0),
        ("A", 35.0),
        ("B", 60.0),
    ]


def test_an_artifact_whose_time_is_over_is_not_asked_for_again(world: World) -> None:
    def too_slow(fetch: Fetch) -> TransferResult:
        world.clock.advance(61.0)
        raise PeerLostError("gone")

    world.answers = {"A": too_slow, "B": delivered}
    sources = [source(f"a{n}", "A") for n in range(8)]
    assert world.incoming().from_any(iter([*sources, B])).source.worker_id == "b"
    assert [fetch.artifact_id for fetch in world.fetches] == ["A", "B"]


def test_what_others_know_of_is_found_for_the_artifact_that_is_fetched(world: World) -> None:
    asked: list[str] = []

    def find_more(artifact_id: str) -> list[SourceAddress]:
        asked.append(artifact_id)
        return [SourceAddress("more:1", "s")]

    found: list[list[SourceAddress]] = []

    def look(fetch: Fetch) -> TransferResult:
        found.append(list(fetch.find_more()))
        return delivered(fetch)

    world.answers = {"A": look}
    world.incoming().from_any([A1], find_more)
    assert asked == ["A"]
    assert found == [[SourceAddress("a1:1", "s"), SourceAddress("more:1", "s")]]
