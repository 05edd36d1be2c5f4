"""A transfer is handed as many sources as it needs, each of which costs a call."""

from __future__ import annotations

from collections.abc import Iterator

from mx_artifacts.artifacts.protocol import ArtifactSourceEndpoint
from mx_artifacts.artifacts.target.source_supply import SourceSupply, address_of
from mx_artifacts.errors import PeerLostError
from mx_artifacts.observability.catalogue import SourceFailed, SpanReceived
from mx_artifacts.observability.events import Event, ignore_events
from mx_artifacts.transfer.base import SourceAddress
from mx_artifacts.transfer.source_manager import MAX_SOURCES

SOURCES = [ArtifactSourceEndpoint("s", f"w{n}", 0, f"w{n}:1", "a", 10) for n in range(20)]
OTHER = ArtifactSourceEndpoint("s", "other", 0, "other:1", "b", 10)
LOST = SourceFailed("w0:1", PeerLostError("gone"))


class Taken:
    """Candidates, and how many of them were taken."""

    def __init__(self, *sources: ArtifactSourceEndpoint) -> None:
        self.count = 0
        self._sources = sources

    def __iter__(self) -> Iterator[ArtifactSourceEndpoint]:
        for source in self._sources:
            self.count += 1
            yield source


def nobody() -> list[SourceAddress]:
    return []


def test_it_begins_with_as_many_as_are_read_from_at_once() -> None:
    taken = Taken(*SOURCES)
    assert SourceSupply(taken, ignore_events).next_sources() == SOURCES[:MAX_SOURCES]
    assert taken.count == MAX_SOURCES


def test_while_sources_deliver_no_more_are_taken() -> None:
    taken = Taken(*SOURCES)
    supply = SourceSupply(taken, ignore_events)
    supply.next_sources()
    for _ in range(10):
        supply.watch(SpanReceived(1))
        assert len(supply.further("a", nobody)) == MAX_SOURCES
    assert taken.count == MAX_SOURCES


def test_one_more_is_taken_for_each_that_failed_and_where_nothing_comes() -> None:
    taken = Taken(*SOURCES)
    supply = SourceSupply(taken, ignore_events)
    supply.next_sources()
    for event in (SpanReceived(1), LOST, LOST):
        supply.watch(event)
    assert len(supply.further("a", nobody)) == MAX_SOURCES + 2
    assert len(supply.further("a", nobody)) == MAX_SOURCES + 3  # nothing came meanwhile
    assert taken.count == MAX_SOURCES + 3


def test_sources_of_another_artifact_wait_for_their_turn() -> None:
    supply = SourceSupply(Taken(SOURCES[0], OTHER, *SOURCES[1:3]), ignore_events)
    assert supply.next_sources() == SOURCES[:3]
    assert supply.further("a", nobody) == [address_of(each) for each in SOURCES[:3]]
    assert supply.next_sources() == [OTHER]
    assert supply.next_sources() == []


def test_sources_of_a_search_are_added_and_events_are_passed_on() -> None:
    seen: list[Event] = []
    supply = SourceSupply(Taken(SOURCES[0]), seen.append)
    supply.next_sources()
    supply.watch(LOST)
    found = SourceAddress("found:1", "s")
    assert supply.further("a", lambda: [found]) == [address_of(SOURCES[0]), found]
    assert seen == [LOST]


def test_a_list_which_costs_no_call_is_handed_over_as_a_whole() -> None:
    assert SourceSupply(SOURCES, ignore_events).next_sources() == SOURCES
