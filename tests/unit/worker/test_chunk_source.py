"""Where chunks lie while targets read them: what is leased, what is freed, and when."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from mx_artifacts.core.manifest import ManifestChunk
from mx_artifacts.errors import (
    BundleError,
    ChunkChecksumError,
    ConfigurationError,
    LeaseError,
    NoFreeSlotError,
    RegistrationError,
)
from mx_artifacts.memory.buffers import Buffer, FileBuffer
from mx_artifacts.transport.base import LocalMemory, Region, RemoteRange
from mx_artifacts.transport.inproc import InprocTransport
from mx_artifacts.worker.chunk_source import (
    ChunkSource,
    ResidentChunkSource,
    SlotChunkSource,
    open_chunk_source,
)
from tests.support.artifacts import (
    CHUNK_SIZE,
    SealedArtifact,
    in_memory_or_file,
    make_artifact,
    new_agent,
)


@pytest.fixture
def agent() -> Iterator[InprocTransport]:
    with closing(new_agent("source")) as agent:
        yield agent


@pytest.fixture
def artifact() -> SealedArtifact:
    return make_artifact({"a.tar": 2 * CHUNK_SIZE + 7, "b.tar": 0, "c.tar": CHUNK_SIZE})


@pytest.fixture(params=["in memory", "in files"])
def source(
    request: pytest.FixtureRequest, agent: InprocTransport, artifact: SealedArtifact, tmp_path: Path
) -> Iterator[ChunkSource]:
    bundles = artifact.bundles(in_files=tmp_path if request.param == "in files" else None)
    with closing(open_chunk_source(agent, artifact.manifest, bundles, slots=2)) as source:
        yield source


def registered(agent: InprocTransport) -> int:
    return len(agent._regions)


def bytes_at(agent: InprocTransport, at: RemoteRange) -> bytes:
    """Return what a target would read there."""
    target = bytearray(at.length)
    agent.copy_out(at, memoryview(target), 0)
    return bytes(target)


def chunk_bytes(artifact: SealedArtifact, chunk: ManifestChunk) -> bytes:
    content = artifact.content[artifact.manifest.files[chunk.file_index].path]
    return content[chunk.file_offset : chunk.file_offset + chunk.length]


# --- both ways -----------------------------------------------------------------------------------


def test_each_chunk_lies_where_its_lease_says(
    agent: InprocTransport, artifact: SealedArtifact, source: ChunkSource
) -> None:
    assert len(artifact.manifest.chunks) == 4
    for chunk in artifact.manifest.chunks:
        at, give_back = source.lease(chunk, 0.0)
        assert bytes_at(agent, at) == chunk_bytes(artifact, chunk)
        give_back()
    assert source.available() is None


def test_a_block_is_the_bytes_of_its_range(artifact: SealedArtifact, source: ChunkSource) -> None:
    with source.block(0, CHUNK_SIZE - 1, 9) as data:
        assert bytes(data) == artifact.content["/bundle/a.tar"][CHUNK_SIZE - 1 : CHUNK_SIZE + 8]


def test_memory_stays_until_the_last_lease_is_given_back(
    agent: InprocTransport, artifact: SealedArtifact, source: ChunkSource
) -> None:
    chunk = artifact.manifest.chunks[1]
    at, give_back = source.lease(chunk, 0.0)
    source.close()
    assert bytes_at(agent, at) == chunk_bytes(artifact, chunk)
    give_back()
    assert registered(agent) == 0
    source.close()


def test_a_closed_source_leases_nothing(artifact: SealedArtifact, source: ChunkSource) -> None:
    source.close()
    with pytest.raises(LeaseError):
        source.lease(artifact.manifest.chunks[0], 0.0)
    with pytest.raises(LeaseError), source.block(0, 0, 1):
        pass


def test_memory_stays_while_a_block_is_read(
    agent: InprocTransport, artifact: SealedArtifact, source: ChunkSource
) -> None:
    with source.block(0, 0, CHUNK_SIZE) as data:
        source.close()
        assert bytes(data) == artifact.content["/bundle/a.tar"][:CHUNK_SIZE]
    del data
    assert registered(agent) == 0


# --- resident ------------------------------------------------------------------------------------


def test_a_resident_artifact_is_leased_as_a_whole_without_its_empty_bundles(
    agent: InprocTransport, artifact: SealedArtifact
) -> None:
    source = open_chunk_source(agent, artifact.manifest, artifact.bundles(), slots=1)
    leased = source.lease_whole()
    assert leased is not None
    whole, give_back = leased
    assert {index: bytes_at(agent, at) for index, at in whole.items()} == {
        0: artifact.content["/bundle/a.tar"],
        2: artifact.content["/bundle/c.tar"],
    }
    source.close()
    assert registered(agent) == 2
    give_back()
    assert registered(agent) == 0
    with pytest.raises(LeaseError):
        source.lease_whole()


class NarrowAgent(InprocTransport):
    """Registers so many memories and no more."""

    def __init__(self, name: str, limit: int) -> None:
        super().__init__(name)
        self._limit = limit

    def register(self, memory: LocalMemory) -> Region:
        if len(self._regions) >= self._limit:
            raise RegistrationError("no more memory may be locked")
        return super().register(memory)


def test_if_one_bundle_cannot_be_registered_none_stays_registered(artifact: SealedArtifact) -> None:
    with closing(NarrowAgent("narrow", 1)) as agent:
        with pytest.raises(RegistrationError):
            open_chunk_source(agent, artifact.manifest, artifact.bundles(), slots=1)
        assert registered(agent) == 0


# --- slots ---------------------------------------------------------------------------------------


def test_an_artifact_in_files_is_not_leased_as_a_whole(
    agent: InprocTransport, artifact: SealedArtifact, tmp_path: Path
) -> None:
    with closing(
        open_chunk_source(agent, artifact.manifest, artifact.bundles(in_files=tmp_path), slots=2)
    ) as source:
        assert isinstance(source, SlotChunkSource)
        assert source.lease_whole() is None


def test_one_bundle_in_a_file_puts_all_behind_slots(
    agent: InprocTransport, artifact: SealedArtifact, tmp_path: Path
) -> None:
    bundles = artifact.bundles()
    bundles["/bundle/a.tar"] = in_memory_or_file(artifact.content["/bundle/a.tar"], tmp_path)
    assert isinstance(bundles["/bundle/c.tar"], Buffer)
    with closing(open_chunk_source(agent, artifact.manifest, bundles, slots=1)) as source:
        assert isinstance(source, SlotChunkSource)
        for chunk in artifact.manifest.chunks:
            at, give_back = source.lease(chunk, 0.0)
            assert bytes_at(agent, at) == chunk_bytes(artifact, chunk)
            give_back()


def test_an_empty_bundle_in_a_file_costs_no_slots(
    agent: InprocTransport, artifact: SealedArtifact, tmp_path: Path
) -> None:
    bundles = artifact.bundles()
    bundles["/bundle/b.tar"] = in_memory_or_file(artifact.content["/bundle/b.tar"], tmp_path)
    assert isinstance(bundles["/bundle/b.tar"], FileBuffer)
    with closing(open_chunk_source(agent, artifact.manifest, bundles, slots=1)) as source:
        assert isinstance(source, ResidentChunkSource)


def test_as_many_chunks_are_leased_at_once_as_there_are_slots(
    agent: InprocTransport, artifact: SealedArtifact, tmp_path: Path
) -> None:
    bundles = artifact.bundles(in_files=tmp_path)
    first, second, third, _ = artifact.manifest.chunks
    with closing(open_chunk_source(agent, artifact.manifest, bundles, slots=2)) as source:
        leases = [source.lease(chunk, 0.0) for chunk in (first, second)]
        with pytest.raises(NoFreeSlotError):
            source.lease(third, 0.0)
        leases[0][1]()
        at, give_back = source.lease(third, 0.0)
        assert bytes_at(agent, at) == chunk_bytes(artifact, third)
        assert bytes_at(agent, leases[1][0]) == chunk_bytes(artifact, second), "not overwritten"
        leases[1][1]()
        give_back()


def test_there_are_no_more_slots_than_chunks(agent: InprocTransport, tmp_path: Path) -> None:
    artifact = make_artifact({"a.tar": CHUNK_SIZE + 1})
    bundles = artifact.bundles(in_files=tmp_path)
    with closing(open_chunk_source(agent, artifact.manifest, bundles, slots=1000)):
        assert registered(agent) == 2


def test_a_chunk_that_its_disk_returns_damaged_is_not_leased_and_frees_its_slot(
    agent: InprocTransport, artifact: SealedArtifact, tmp_path: Path
) -> None:
    bundles = artifact.bundles(in_files=tmp_path)
    bundles["/bundle/a.tar"].view[CHUNK_SIZE] ^= 1
    good, bad, *_ = artifact.manifest.chunks
    source = open_chunk_source(agent, artifact.manifest, bundles, slots=1)
    for _ in range(2):
        with pytest.raises(ChunkChecksumError, match="chunk 1 is not as it was sealed"):
            source.lease(bad, 0.0)
    _, give_back = source.lease(good, 0.0)
    source.close()
    give_back()
    assert registered(agent) == 0, "those who were refused are no users"


class BrokenFile(FileBuffer):
    """Its disk is gone."""

    def read_into(self, offset: int, target: memoryview) -> None:
        raise OSError(5, "Input/output error")


def test_a_bundle_that_cannot_be_read_is_named_so(agent: InprocTransport, tmp_path: Path) -> None:
    artifact = make_artifact({"a.tar": 9})
    bundles = {"/bundle/a.tar": BrokenFile(tmp_path, 9)}
    with closing(open_chunk_source(agent, artifact.manifest, bundles, slots=1)) as source:
        for _ in range(2):
            with pytest.raises(BundleError, match="Input/output error"):
                source.lease(artifact.manifest.chunks[0], 0.0)
            with pytest.raises(BundleError), source.block(0, 0, 9):
                pass


def test_a_bundle_that_is_missing_is_named(
    agent: InprocTransport, artifact: SealedArtifact
) -> None:
    bundles = artifact.bundles()
    del bundles["/bundle/c.tar"]
    with pytest.raises(ConfigurationError, match=r"/bundle/c\.tar"):
        open_chunk_source(agent, artifact.manifest, bundles, slots=1)
    assert registered(agent) == 0
