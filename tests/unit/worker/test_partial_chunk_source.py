"""Memory that is still being filled: only what has arrived is given away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from mx_artifacts.errors import NoFreeSlotError
from mx_artifacts.transport.inproc import InprocTransport
from mx_artifacts.worker.partial_chunk_source import PartialChunkSource
from tests.support.artifacts import CHUNK_SIZE, SealedArtifact, make_artifact, new_agent


@pytest.fixture
def agent() -> Iterator[InprocTransport]:
    with closing(new_agent("source")) as agent:
        yield agent


@pytest.fixture
def artifact() -> SealedArtifact:
    return make_artifact({"a.tar": 2 * CHUNK_SIZE, "b.tar": CHUNK_SIZE})


@pytest.fixture
def source(agent: InprocTransport, artifact: SealedArtifact) -> Iterator[PartialChunkSource]:
    with closing(PartialChunkSource(agent, list(artifact.bundles().values()))) as source:
        yield source


def test_nothing_is_there_at_first(source: PartialChunkSource, artifact: SealedArtifact) -> None:
    available = source.available()
    assert available is not None
    assert {index: list(ranges) for index, ranges in available.items()} == {0: [], 1: []}
    for chunk in artifact.manifest.chunks:
        with pytest.raises(NoFreeSlotError, match=f"chunk {chunk.chunk_index} has not arrived"):
            source.lease(chunk, 0.0)
    with pytest.raises(NoFreeSlotError), source.block(0, 0, 1):
        pass


def test_a_chunk_is_leased_once_all_of_it_has_arrived_in_whatever_order(
    source: PartialChunkSource, artifact: SealedArtifact
) -> None:
    second = artifact.manifest.chunks[1]
    source.arrived(0, CHUNK_SIZE + 10, 2 * CHUNK_SIZE)
    with pytest.raises(NoFreeSlotError):
        source.lease(second, 0.0)
    source.arrived(0, CHUNK_SIZE - 10, CHUNK_SIZE + 10)
    _, give_back = source.lease(second, 0.0)
    give_back()
    with pytest.raises(NoFreeSlotError):
        source.lease(artifact.manifest.chunks[0], 0.0)


def test_a_block_is_lent_where_all_of_it_has_arrived(
    source: PartialChunkSource, artifact: SealedArtifact
) -> None:
    source.arrived(1, 100, 200)
    with source.block(1, 100, 100) as data:
        assert bytes(data) == artifact.content["/bundle/b.tar"][100:200]
    for offset, length in ((99, 2), (100, 101), (199, 2)):
        with pytest.raises(NoFreeSlotError), source.block(1, offset, length):
            pass
    with pytest.raises(NoFreeSlotError), source.block(0, 100, 100):
        pass


def test_returned_ranges_do_not_change_when_more_bytes_arrive(
    source: PartialChunkSource,
) -> None:
    source.arrived(0, 0, 10)
    told = source.available()
    assert told is not None
    source.arrived(0, 10, 20)
    assert list(told[0]) == [(0, 10)]
    later = source.available()
    assert later is not None
    assert list(later[0]) == [(0, 20)]


def test_a_complete_one_is_as_any_resident_source(
    source: PartialChunkSource, artifact: SealedArtifact
) -> None:
    source.complete()
    assert source.available() is None
    for chunk in artifact.manifest.chunks:
        _, give_back = source.lease(chunk, 0.0)
        give_back()
    source.arrived(0, 0, 1)  # a late word changes nothing
    assert source.available() is None


def test_it_is_leased_as_a_whole_before_it_is_complete(source: PartialChunkSource) -> None:
    leased = source.lease_whole()
    assert leased is not None
    assert set(leased[0]) == {0, 1}
    leased[1]()
