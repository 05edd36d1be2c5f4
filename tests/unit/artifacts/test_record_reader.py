"""Records that are read one by one: some fail, and at some point it is the server."""

from __future__ import annotations

from typing import cast

import pytest

from mx_artifacts.artifacts.target.record_reader import MAX_FAILURES_IN_A_ROW, RecordReader
from mx_artifacts.client.central import CentralClient
from mx_artifacts.core.identity import SourceIdentity
from mx_artifacts.core.sources import SourceRef, StoredWorker, WorkerRecord
from mx_artifacts.errors import BackendUnavailableError, MxArtifactsError, RemoteError


class Server:
    """Answers by worker id: a record, none, or an error."""

    def __init__(self) -> None:
        self.answers: dict[str, StoredWorker | MxArtifactsError | None] = {}

    def get_metadata(self, mx_source_id: str, worker_id: str) -> StoredWorker | None:
        answer = self.answers[worker_id]
        if isinstance(answer, MxArtifactsError):
            raise answer
        return answer


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def reader(server: Server) -> RecordReader:
    return RecordReader(cast(CentralClient, server))


def ref(worker_id: str) -> SourceRef:
    return SourceRef("s", worker_id, "m", 0)


def stored(worker_id: str) -> StoredWorker:
    return StoredWorker("s", worker_id, SourceIdentity(), WorkerRecord())


def test_a_record_is_returned_and_one_that_went_away_is_none(
    server: Server, reader: RecordReader
) -> None:
    server.answers = {"here": stored("here"), "gone": None}
    assert reader.read(ref("here")) == stored("here")
    assert reader.read(ref("gone")) is None
    assert reader.failures == {}


def test_one_that_cannot_be_read_is_passed_over_and_told(
    server: Server, reader: RecordReader
) -> None:
    error = RemoteError("damaged")
    server.answers = {"bad": error, "good": stored("good")}
    assert reader.read(ref("bad")) is None
    assert reader.read(ref("good")) == stored("good")
    ((label, told),) = reader.failures.items()
    assert told is error
    assert "bad" in label


def test_after_some_in_a_row_it_is_the_server_that_fails(
    server: Server, reader: RecordReader
) -> None:
    errors = [BackendUnavailableError(str(n)) for n in range(MAX_FAILURES_IN_A_ROW)]
    server.answers = {str(number): error for number, error in enumerate(errors)}
    for number in range(MAX_FAILURES_IN_A_ROW - 1):
        assert reader.read(ref(str(number))) is None
    with pytest.raises(BackendUnavailableError) as caught:
        reader.read(ref(str(MAX_FAILURES_IN_A_ROW - 1)))
    assert caught.value is errors[-1]
    assert list(reader.failures.values()) == errors


@pytest.mark.parametrize("between", [stored("between"), None])
def test_an_answer_in_between_begins_the_count_anew(
    server: Server, reader: RecordReader, between: StoredWorker | None
) -> None:
    server.answers = {"bad": RemoteError("damaged"), "between": between}
    for _ in range(3):
        for _ in range(MAX_FAILURES_IN_A_ROW - 1):
            assert reader.read(ref("bad")) is None
        reader.read(ref("between"))
