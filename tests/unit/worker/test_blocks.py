"""Compressed blocks: made once for several targets, within their slots and their turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from mx_artifacts.compression import ZSTD
from mx_artifacts.errors import LeaseError, NoFreeSlotError, RegistrationError
from mx_artifacts.runtime.clock import FakeClock
from mx_artifacts.runtime.rate_limit import RateLimit
from mx_artifacts.transport.base import LocalMemory, Region, RemoteRange
from mx_artifacts.transport.inproc import InprocTransport
from mx_artifacts.worker import blocks as blocks_module
from mx_artifacts.worker.admission import Turn
from mx_artifacts.worker.blocks import Blocks
from mx_artifacts.worker.catalogue import ServedArtifact
from mx_artifacts.worker.chunk_source import open_chunk_source
from mx_artifacts.worker.partial_chunk_source import PartialChunkSource
from tests.support.artifacts import SOURCE_ID, SealedArtifact, make_artifact, new_agent

SLOTS = 2
LENGTH = 1000
"""Of each block here [bytes]; the fake compressor makes a tenth of it."""


class Compressor:
    """Stands in for zstd: a block becomes its every tenth byte; `ratio` 1.0: it cannot."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self.ratio = 0.1
        self.error: Exception | None = None
        monkeypatch.setattr(blocks_module, "compress", self._compress)

    def _compress(self, data: memoryview) -> bytes:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return bytes(data)[: int(self.ratio * len(data))]


@pytest.fixture
def agent() -> Iterator[InprocTransport]:
    with closing(new_agent("source")) as agent:
        yield agent


@pytest.fixture
def compressor(monkeypatch: pytest.MonkeyPatch) -> Compressor:
    return Compressor(monkeypatch)


@pytest.fixture
def artifact() -> SealedArtifact:
    return make_artifact({"a.tar": 4 * LENGTH})


@pytest.fixture
def served(agent: InprocTransport, artifact: SealedArtifact) -> Iterator[ServedArtifact]:
    source = open_chunk_source(agent, artifact.manifest, artifact.bundles(), slots=1)
    with closing(source):
        yield ServedArtifact(SOURCE_ID, artifact.artifact_id, artifact.manifest, source)


@pytest.fixture
def blocks(agent: InprocTransport) -> Iterator[Blocks]:
    with closing(Blocks(agent, SLOTS)) as blocks:
        yield blocks


def turn(bytes_per_second: float | None = None) -> Turn:
    """Return a turn of no patience, in which the bytes of one second may go by at once."""
    clock = FakeClock()
    return Turn(RateLimit(bytes_per_second, clock), 0.0, clock)


def bytes_at(agent: InprocTransport, at: RemoteRange) -> bytes:
    target = bytearray(at.length)
    agent.copy_out(at, memoryview(target), 0)
    return bytes(target)


def content(artifact: SealedArtifact, number: int) -> bytes:
    return artifact.content["/bundle/a.tar"][number * LENGTH :][:LENGTH]


def test_a_block_lies_compressed_where_its_lease_says(
    agent: InprocTransport,
    blocks: Blocks,
    served: ServedArtifact,
    artifact: SealedArtifact,
    compressor: Compressor,
) -> None:
    block = blocks.lease(served, 0, LENGTH, LENGTH, turn())
    assert block.encoding == ZSTD
    assert bytes_at(agent, block.at) == content(artifact, 1)[: LENGTH // 10]
    assert "inproc" in block.descriptors
    block.give_back()


@pytest.mark.parametrize(("ratio", "encoding"), [(0.95, ZSTD), (0.96, ""), (1.5, "")])
def test_a_block_that_hardly_shrinks_is_sent_uncompressed(
    agent: InprocTransport,
    blocks: Blocks,
    served: ServedArtifact,
    artifact: SealedArtifact,
    compressor: Compressor,
    ratio: float,
    encoding: str,
) -> None:
    compressor.ratio = ratio
    block = blocks.lease(served, 0, 0, LENGTH, turn())
    assert block.encoding == encoding
    if not encoding:
        assert bytes_at(agent, block.at) == content(artifact, 0)
    block.give_back()


@pytest.mark.parametrize("ratio", [0.1, 1.0])
def test_a_block_that_several_targets_request_is_compressed_once(
    blocks: Blocks, served: ServedArtifact, compressor: Compressor, ratio: float
) -> None:
    compressor.ratio = ratio
    for _ in range(3):
        blocks.lease(served, 0, 0, LENGTH, turn()).give_back()
    assert compressor.calls == 1
    blocks.lease(served, 0, LENGTH, LENGTH, turn()).give_back()
    assert compressor.calls == 2


def test_there_are_as_many_leases_as_slots_and_each_has_its_own_memory(
    agent: InprocTransport,
    blocks: Blocks,
    served: ServedArtifact,
    artifact: SealedArtifact,
    compressor: Compressor,
) -> None:
    leased = [blocks.lease(served, 0, n * LENGTH, LENGTH, turn()) for n in range(SLOTS)]
    with pytest.raises(NoFreeSlotError):
        blocks.lease(served, 0, 2 * LENGTH, LENGTH, turn())
    for number, block in enumerate(leased):
        assert bytes_at(agent, block.at) == content(artifact, number)[: LENGTH // 10]
    for block in leased:
        block.give_back()
    blocks.lease(served, 0, 2 * LENGTH, LENGTH, turn()).give_back()


def _fail_compressing(compressor: Compressor, _served: ServedArtifact) -> Turn:
    compressor.error = NoFreeSlotError("made up")
    return turn()


def _fail_at_the_rate(compressor: Compressor, _served: ServedArtifact) -> Turn:
    slow = turn(bytes_per_second=1.0)
    slow.admit(LENGTH)
    return slow


@pytest.mark.parametrize("fail", [_fail_compressing, _fail_at_the_rate])
def test_one_that_is_refused_holds_no_slot_and_is_made_the_next_time(
    blocks: Blocks,
    served: ServedArtifact,
    compressor: Compressor,
    fail: Callable[[Compressor, ServedArtifact], Turn],
) -> None:
    failing = fail(compressor, served)
    for _ in range(2 * SLOTS):
        with pytest.raises(NoFreeSlotError):
            blocks.lease(served, 0, 0, LENGTH, failing)
    compressor.error = None
    blocks.lease(served, 0, 0, LENGTH, turn()).give_back()


def test_the_rate_counts_what_is_carried(
    blocks: Blocks, served: ServedArtifact, compressor: Compressor
) -> None:
    clock = FakeClock()
    rate = RateLimit(LENGTH / 10, clock)
    for number in range(3):  # each is a second's worth
        blocks.lease(served, 0, number * LENGTH, LENGTH, Turn(rate, 60.0, clock)).give_back()
    assert rate.reserve(1, 60.0) == 1.0, "the first two seconds were waited for"


def test_bytes_that_have_not_arrived_are_not_compressed(
    agent: InprocTransport, blocks: Blocks, artifact: SealedArtifact, compressor: Compressor
) -> None:
    with closing(PartialChunkSource(agent, list(artifact.bundles().values()))) as source:
        served = ServedArtifact(SOURCE_ID, artifact.artifact_id, artifact.manifest, source)
        for _ in range(2 * SLOTS):
            with pytest.raises(NoFreeSlotError, match="not arrived"):
                blocks.lease(served, 0, 0, LENGTH, turn())
        assert compressor.calls == 0
        source.arrived(0, 0, LENGTH)
        blocks.lease(served, 0, 0, LENGTH, turn()).give_back()


def test_slots_are_made_for_the_first_target_and_freed_with_the_last_lease(
    agent: InprocTransport, served: ServedArtifact, compressor: Compressor
) -> None:
    before = len(agent._regions)
    blocks = Blocks(agent, SLOTS)
    assert len(agent._regions) == before
    blocks.warm_up()
    assert len(agent._regions) == before + SLOTS
    block = blocks.lease(served, 0, 0, LENGTH, turn())
    assert len(agent._regions) == before + SLOTS
    blocks.close()
    blocks.close()
    assert len(agent._regions) == before + 1
    block.give_back()
    assert len(agent._regions) == before
    with pytest.raises(LeaseError, match="stopping"):
        blocks.lease(served, 0, 0, LENGTH, turn())
    blocks.warm_up()
    assert len(agent._regions) == before


class FullAgent(InprocTransport):
    is_full = True

    def register(self, memory: LocalMemory) -> Region:
        if self.is_full:
            raise RegistrationError("no more memory may be locked")
        return super().register(memory)


def test_a_lack_of_memory_fails_the_request_for_a_block_and_may_be_temporary(
    served: ServedArtifact, compressor: Compressor
) -> None:
    with closing(FullAgent("full")) as agent, closing(Blocks(agent, SLOTS)) as blocks:
        blocks.warm_up()
        with pytest.raises(RegistrationError):
            blocks.lease(served, 0, 0, LENGTH, turn())
        agent.is_full = False
        blocks.lease(served, 0, 0, LENGTH, turn()).give_back()
