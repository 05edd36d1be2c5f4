"""What a worker serves: found by ids, under several source ids, from one memory."""

from __future__ import annotations

from typing import cast

import pytest

from mx_artifacts.errors import ConfigurationError, RecordNotFoundError
from mx_artifacts.worker.catalogue import Catalogue, ServedArtifact
from mx_artifacts.worker.chunk_source import ChunkSource
from tests.support.artifacts import CHUNK_SIZE, SealedArtifact, make_artifact


def new_memory() -> ChunkSource:
    return cast(ChunkSource, object())  # the catalogue only tells one from another


def serve(source_id: str, artifact: SealedArtifact, source: ChunkSource) -> ServedArtifact:
    return ServedArtifact(source_id, artifact.artifact_id, artifact.manifest, source)


A = make_artifact({"a.tar": 3 * CHUNK_SIZE - 1, "empty.tar": 0})
B = make_artifact({"b.tar": 1})


@pytest.fixture
def catalogue() -> Catalogue:
    return Catalogue()


# --- ids -----------------------------------------------------------------------------------------


def test_an_artifact_is_found_by_its_ids_or_without_them_if_it_is_the_only_one(
    catalogue: Catalogue,
) -> None:
    served = serve("one", A, new_memory())
    catalogue.add(served)
    for source_id in ("one", ""):
        for artifact_id in (A.artifact_id, ""):
            assert catalogue.select(source_id, artifact_id) is served


@pytest.mark.parametrize(
    ("source_id", "artifact_id"), [("two", ""), ("", "0" * 64), ("two", A.artifact_id)]
)
def test_an_artifact_that_is_not_served_is_not_found(
    catalogue: Catalogue, source_id: str, artifact_id: str
) -> None:
    with pytest.raises(RecordNotFoundError, match=r"\(any\) of source \(any\)"):
        catalogue.select("", "")
    catalogue.add(serve("one", A, new_memory()))
    with pytest.raises(RecordNotFoundError, match=artifact_id or source_id):
        catalogue.select(source_id, artifact_id)


def test_of_several_artifacts_one_must_be_named(catalogue: Catalogue) -> None:
    catalogue.add(serve("one", A, new_memory()))
    catalogue.add(serve("one", B, new_memory()))
    with pytest.raises(ConfigurationError, match="2 artifacts match"):
        catalogue.select("one", "")
    assert catalogue.select("", B.artifact_id).artifact_id == B.artifact_id


def test_one_artifact_of_two_source_ids_is_found_without_a_source_id(
    catalogue: Catalogue,
) -> None:
    memory = new_memory()
    catalogue.add(serve("one", A, memory))
    catalogue.add_alias("two", "one", A.artifact_id)
    assert catalogue.select("", A.artifact_id).source is memory
    assert catalogue.select("two", "").mx_source_id == "two"


def test_an_artifact_is_added_once_under_one_source_id(catalogue: Catalogue) -> None:
    first = serve("one", A, new_memory())
    catalogue.add(first)
    with pytest.raises(ConfigurationError, match="already served"):
        catalogue.add(serve("one", A, new_memory()))
    assert catalogue.select("one", "") is first
    catalogue.add(serve("two", A, new_memory()))


def test_an_alias_is_of_something_that_is_served_and_is_new(catalogue: Catalogue) -> None:
    with pytest.raises(RecordNotFoundError):
        catalogue.add_alias("two", "one", A.artifact_id)
    catalogue.add(serve("one", A, new_memory()))
    catalogue.add_alias("two", "one", A.artifact_id)
    with pytest.raises(ConfigurationError, match="already served"):
        catalogue.add_alias("two", "one", A.artifact_id)


def test_a_renamed_source_is_found_by_its_new_id_only(catalogue: Catalogue) -> None:
    memories = {each.artifact_id: new_memory() for each in (A, B)}
    for each in (A, B):
        catalogue.add(serve("ours", each, memories[each.artifact_id]))
    catalogue.add(serve("other", A, new_memory()))
    catalogue.rename_source("ours", "theirs")
    for each in (A, B):
        found = catalogue.select("theirs", each.artifact_id)
        assert (found.mx_source_id, found.source) == ("theirs", memories[each.artifact_id])
    with pytest.raises(RecordNotFoundError):
        catalogue.select("ours", "")
    assert catalogue.select("other", A.artifact_id).mx_source_id == "other"


def test_a_source_that_is_renamed_to_its_own_id_is_served_on(catalogue: Catalogue) -> None:
    catalogue.add(serve("one", A, new_memory()))
    catalogue.rename_source("one", "one")
    assert catalogue.select("one", A.artifact_id).mx_source_id == "one"


# --- memory --------------------------------------------------------------------------------------


def test_memory_is_given_back_with_the_last_id_it_is_served_under(catalogue: Catalogue) -> None:
    memory = new_memory()
    catalogue.add(serve("one", A, memory))
    catalogue.add_alias("two", "one", A.artifact_id)
    assert catalogue.remove("one", A.artifact_id) is None
    assert catalogue.remove("one", A.artifact_id) is None, "it is idempotent"
    removed = catalogue.remove("two", A.artifact_id)
    assert removed is not None
    assert removed.source is memory
    assert catalogue.remove("two", A.artifact_id) is None


def test_one_artifact_in_two_memories_is_given_back_one_by_one(catalogue: Catalogue) -> None:
    first, second = new_memory(), new_memory()
    catalogue.add(serve("one", A, first))
    catalogue.add(serve("two", A, second))
    removed = catalogue.remove("one", A.artifact_id)
    assert removed is not None
    assert removed.source is first


def test_all_lists_each_memory_once(catalogue: Catalogue) -> None:
    first, second = new_memory(), new_memory()
    catalogue.add(serve("one", A, first))
    catalogue.add_alias("two", "one", A.artifact_id)
    catalogue.add(serve("one", B, second))
    assert [served.source for served in catalogue.all()] == [first, second]


# --- requests ------------------------------------------------------------------------------------


def test_a_chunk_is_one_of_the_manifest_s() -> None:
    served = serve("one", A, new_memory())
    assert [served.chunk(n).chunk_index for n in range(3)] == [0, 1, 2]
    with pytest.raises(ConfigurationError, match="has 3 chunks, so there is no chunk 3"):
        served.chunk(3)


@pytest.mark.parametrize(
    ("file_index", "offset", "length"),
    [
        (0, 0, 0),
        (0, 0, CHUNK_SIZE + 1),  # more than is had at once
        (0, 3 * CHUNK_SIZE - 1, 1),
        (0, 3 * CHUNK_SIZE - 2, 2),
        (1, 0, 1),  # of an empty bundle
        (2, 0, 1),  # of none
    ],
)
def test_a_range_is_within_its_bundle_and_of_a_size_that_may_be_had(
    file_index: int, offset: int, length: int
) -> None:
    served = serve("one", A, new_memory())
    served.check_range(0, 3 * CHUNK_SIZE - 2, 1, CHUNK_SIZE)
    served.check_range(0, 0, CHUNK_SIZE, CHUNK_SIZE)
    with pytest.raises(ConfigurationError, match=f"{length} bytes at {offset} of bundle"):
        served.check_range(file_index, offset, length, CHUNK_SIZE)
