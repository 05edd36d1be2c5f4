"""Sources that lie in their tables or leases: refused, and nothing is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mx_artifacts.errors import ArtifactIdMismatchError, IntegrityError, ManifestInvalidError
from mx_artifacts.transport.base import Transport
from mx_artifacts.worker.worker_service import WorkerService
from tests.support.artifacts import CHUNK_SIZE, make_artifact, new_agent, serving
from tests.support.received import TransferResult, fetch

HEADER, PAGES, PREPARE = (
    "GetArtifactManifestHeader",
    "GetArtifactManifestChunks",
    "PrepareArtifactChunk",
)


@pytest.fixture
def agent() -> Iterator[Transport]:
    agent = new_agent("target")
    yield agent
    agent.close()


def fetch_from_liar(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    agent: Transport,
    method: str,
    lie: Callable[[Any], None],
    chunk_size: int = CHUNK_SIZE,
) -> tuple[IntegrityError, int]:
    """Return the error of a fetch, and how many chunks were prepared by then."""
    prepared: list[int] = []

    class Liar(WorkerService):
        def PrepareArtifactChunk(self, request: Any, context: Any) -> Any:
            prepared.append(request.chunk_index)
            return super().PrepareArtifactChunk(request, context)

    honest = getattr(Liar, method)

    def answer(self: Liar, request: Any, context: Any) -> Any:
        response = honest(self, request, context)
        lie(response)
        return response

    setattr(Liar, method, answer)
    monkeypatch.setattr("mx_artifacts.worker.artifact_service.WorkerService", Liar)
    artifact = make_artifact({"artifact.tar": 3 * CHUNK_SIZE}, chunk_size)
    received = TransferResult()
    with serving(artifact, slots=2) as server:
        with pytest.raises(IntegrityError) as caught:
            fetch(server.endpoint, artifact.artifact_id, agent, received, max_inflight_chunks=2)
        assert len(server.artifacts.leases) == 0
    assert not received.finished
    return caught.value, len(prepared)


def _set(**values: Any) -> Callable[[Any], None]:
    def lie(response: Any) -> None:
        for name, value in values.items():
            setattr(response, name, value)

    return lie


def _drop_chunk(response: Any) -> None:
    del response.chunks[1]


def _repeat_chunk(response: Any) -> None:
    response.chunks[1].CopyFrom(response.chunks[0])


def _overlap(response: Any) -> None:
    response.chunks[1].file_offset -= 1


def _extra_chunk(response: Any) -> None:
    response.chunks.add().CopyFrom(response.chunks[0])


def _no_chunks(response: Any) -> None:
    del response.chunks[:]


def _other_checksum(response: Any) -> None:
    response.chunks[0].checksum = "00000000"


def _grow_file(response: Any) -> None:
    response.files[0].size += 1
    response.total_size += 1


def _outside(response: Any) -> None:
    response.files[0].path = "/bundle/../artifact.tar"


def _rename(response: Any) -> None:
    response.files[0].path = "/bundle/other.tar"


@pytest.mark.parametrize(
    ("method", "lie"),
    [
        (HEADER, _set(artifact_id="0" * 64)),
        (HEADER, _set(mx_source_id="f" * 16)),
        (HEADER, _set(chunk_count=4)),
        (HEADER, _set(chunk_count=0)),
        (HEADER, _set(file_count=2)),
        (HEADER, _set(total_size=1 << 50)),
        (HEADER, _set(chunk_size=CHUNK_SIZE + 1)),
        (HEADER, _set(mx_source_type=99)),
        (HEADER, _grow_file),
        (HEADER, _outside),
        (HEADER, _rename),
        (PAGES, _drop_chunk),
        (PAGES, _repeat_chunk),
        (PAGES, _overlap),
        (PAGES, _extra_chunk),
        (PAGES, _no_chunks),
        (PAGES, _other_checksum),
        (PAGES, _set(start_chunk_index=1)),
        (PAGES, _set(next_page_token="3")),
        (PAGES, _set(next_page_token="soon")),
    ],
)
def test_false_tables_are_refused_before_any_byte(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    agent: Transport,
    method: str,
    lie: Callable[[Any], None],
) -> None:
    error, prepared = fetch_from_liar(monkeypatch, tmp_path, agent, method, lie)
    assert isinstance(error, ManifestInvalidError | ArtifactIdMismatchError)
    assert prepared == 0


@pytest.mark.parametrize(
    "lie",
    [_set(next_page_token="0"), _set(next_page_token=""), _no_chunks],
    ids=["goes back", "ends early", "holds nothing"],
)
def test_pages_that_do_not_go_on_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, agent: Transport, lie: Callable[[Any], None]
) -> None:
    """A table of twelve pages, of which the first goes nowhere."""
    error, prepared = fetch_from_liar(monkeypatch, tmp_path, agent, PAGES, lie, chunk_size=1)
    assert isinstance(error, ManifestInvalidError)
    assert prepared == 0


def _other_chunk(response: Any) -> None:
    response.chunk.chunk_index += 1


def _shorter_source(response: Any) -> None:
    response.source.length -= 1


def _lease_checksum(response: Any) -> None:
    response.chunk.checksum = "00000000"


@pytest.mark.parametrize("lie", [_other_chunk, _shorter_source, _lease_checksum])
def test_a_lease_of_something_else_is_refused_and_given_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, agent: Transport, lie: Callable[[Any], None]
) -> None:
    error, _ = fetch_from_liar(monkeypatch, tmp_path, agent, PREPARE, lie)
    assert isinstance(error, ManifestInvalidError)
