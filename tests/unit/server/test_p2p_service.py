"""P2pService's own rules: what it refuses, whose clock counts, and which status counts."""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn, cast

import grpc
import pytest

from mx_artifacts.errors import BackendUnavailableError
from mx_artifacts.metadata.memory import MemoryRecords
from mx_artifacts.observability.catalogue import SourcePublished
from mx_artifacts.observability.events import Event
from mx_artifacts.runtime.clock import FakeClock, unix_ms
from mx_artifacts.server.p2p_service import P2pService
from mx_artifacts.wire.gen.model_express import p2p_pb2 as pb

TIMEOUT_SECONDS = 90.0
MODEL = pb.SourceIdentity(model_name="model", mx_source_type="MX_SOURCE_TYPE_CUDA_GRAPH")


class Refused(Exception):
    def __init__(self, code: grpc.StatusCode) -> None:
        super().__init__(code)
        self.code = code


class Call:
    async def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        raise Refused(code)


CALL = cast(grpc.aio.ServicerContext, Call())


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.records = MemoryRecords()
        self.events: list[Event] = []
        self.service = P2pService(self.records, self.clock, TIMEOUT_SECONDS, self.events.append)

    def call(self, method: str, request: Any) -> Any:
        return asyncio.run(getattr(self.service, method)(request, CALL))

    def publish(self, worker_id: str = "w", **changes: Any) -> Any:
        worker = pb.WorkerMetadata(status=pb.SOURCE_STATUS_READY, **changes)
        return self.call(
            "PublishMetadata",
            pb.PublishMetadataRequest(identity=MODEL, worker=worker, worker_id=worker_id),
        )

    def get(self, mx_source_id: str, worker_id: str = "w") -> Any:
        request = pb.GetMetadataRequest(mx_source_id=mx_source_id, worker_id=worker_id)
        return self.call("GetMetadata", request)

    def beat(self, mx_source_id: str, **changes: Any) -> Any:
        values = {"worker_id": "w", "status": pb.SOURCE_STATUS_READY, **changes}
        return self.call(
            "UpdateStatus", pb.UpdateStatusRequest(mx_source_id=mx_source_id, **values)
        )

    def listed(self, **filters: Any) -> list[str]:
        answer = self.call("ListSources", pb.ListSourcesRequest(**filters))
        return [each.worker_id for each in answer.instances]


@pytest.fixture
def world() -> World:
    return World()


# --- publishing ----------------------------------------------------------------------------------


def test_a_record_is_stored_at_the_server_s_own_time(world: World) -> None:
    answer = world.publish(updated_at=1)
    assert answer.success
    found = world.get(answer.mx_source_id)
    assert found.found
    assert found.worker.updated_at == unix_ms(world.clock)
    assert found.identity == MODEL
    assert world.events == [SourcePublished(answer.mx_source_id, "w")]


def test_a_worker_that_states_no_status_initialises(world: World) -> None:
    request = pb.PublishMetadataRequest(identity=MODEL, worker=pb.WorkerMetadata(), worker_id="w")
    answer = world.call("PublishMetadata", request)
    assert world.get(answer.mx_source_id).worker.status == pb.SOURCE_STATUS_INITIALIZING


@pytest.mark.parametrize(
    "worker_id", ["", "a/b", "a:b", "-a", ".a", "a b", "a\n", "x" * 129, "é", "a*"]
)
def test_a_worker_id_that_could_break_a_key_is_refused_in_the_answer(
    world: World, worker_id: str
) -> None:
    answer = world.publish(worker_id)
    assert not answer.success
    assert "worker_id" in answer.message
    assert world.listed() == []
    assert world.events == []


@pytest.mark.parametrize("worker_id", ["a", "0", "x" * 128, "Pod-1.node_2"])
def test_a_plain_worker_id_is_taken(world: World, worker_id: str) -> None:
    assert world.publish(worker_id).success
    assert world.listed() == [worker_id]


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (pb.PublishMetadataRequest(worker=pb.WorkerMetadata(), worker_id="w"), "model_name"),
        (pb.PublishMetadataRequest(identity=MODEL, worker_id="w"), "worker is missing"),
        (
            pb.PublishMetadataRequest(
                identity=pb.SourceIdentity(
                    model_name="m",
                    mx_source_type=-1,  # type: ignore[arg-type]
                ),
                worker=pb.WorkerMetadata(),
                worker_id="w",
            ),
            "mx_source_type is -1",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_the_answer(
    world: World, request_: pb.PublishMetadataRequest, why: str
) -> None:
    answer = world.call("PublishMetadata", request_)
    assert not answer.success
    assert why in answer.message
    assert world.listed() == []


# --- freshness -----------------------------------------------------------------------------------


def test_a_silent_worker_is_stale_before_the_reaper_has_come(world: World) -> None:
    source = world.publish().mx_source_id
    world.clock.advance(TIMEOUT_SECONDS)
    assert world.get(source).worker.status == pb.SOURCE_STATUS_READY
    assert world.listed(status_filter=pb.SOURCE_STATUS_READY) == ["w"]
    world.clock.advance(0.001)
    assert world.get(source).worker.status == pb.SOURCE_STATUS_STALE
    assert world.listed(status_filter=pb.SOURCE_STATUS_READY) == []
    assert world.listed(status_filter=pb.SOURCE_STATUS_STALE) == ["w"]


def test_a_heartbeat_keeps_it_ready(world: World) -> None:
    source = world.publish().mx_source_id
    for _ in range(3):
        world.clock.advance(TIMEOUT_SECONDS)
        assert world.beat(source).success
    assert world.listed(status_filter=pb.SOURCE_STATUS_READY) == ["w"]


# --- heartbeats ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes", [{"worker_id": "other"}, {"worker_id": "a/b"}, {"worker_rank": 1}]
)
def test_a_heartbeat_of_a_record_that_is_not_there_asks_for_it_anew(
    world: World, changes: dict[str, Any]
) -> None:
    source = world.publish().mx_source_id
    answer = world.beat(source, **changes)
    assert not answer.success
    assert "publish again" in answer.message


def test_a_status_of_another_release_is_refused(world: World) -> None:
    source = world.publish().mx_source_id
    answer = world.beat(source, status=99)
    assert not answer.success
    assert "99" in answer.message


@pytest.mark.parametrize(
    ("load", "kept"),
    [(0.0, 0.0), (0.5, 0.5), (float("nan"), None), (float("inf"), None), (None, None)],
)
def test_a_load_is_kept_if_it_is_a_number(
    world: World, load: float | None, kept: float | None
) -> None:
    source = world.publish().mx_source_id
    world.clock.advance(1)
    assert world.beat(source, **({} if load is None else {"source_load": load})).success
    (row,) = world.call("ListSources", pb.ListSourcesRequest()).instances
    assert (row.source_load if row.HasField("source_load") else None) == kept


# --- reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mx_source_id", "worker_id"),
    [("0" * 16, "w"), ("*", "w"), ("", "w"), ("SOURCE", "a/b"), ("SOURCE", "other")],
)
def test_what_is_not_there_or_is_no_id_is_not_found(
    world: World, mx_source_id: str, worker_id: str
) -> None:
    source = world.publish().mx_source_id
    answer = world.get(mx_source_id.replace("SOURCE", source), worker_id)
    assert not answer.found
    assert answer.worker_id == worker_id


def test_an_identity_without_a_model_name_does_not_filter(world: World) -> None:
    world.publish()
    assert world.listed(identity=pb.SourceIdentity(gpu_arch="sm120")) == ["w"]
    assert world.listed(identity=MODEL) == ["w"]
    assert world.listed(identity=pb.SourceIdentity(model_name="other")) == []


def test_a_backend_that_does_not_answer_is_unavailable_and_never_an_empty_answer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = world.publish().mx_source_id

    async def down(*_arguments: object) -> NoReturn:
        raise BackendUnavailableError("down")

    for name in ("put", "get", "list", "update_status"):
        monkeypatch.setattr(world.records, name, down)
    calls = (world.publish, world.listed, lambda: world.get(source), lambda: world.beat(source))
    for call in calls:
        with pytest.raises(Refused) as caught:
            call()
        assert caught.value.code is grpc.StatusCode.UNAVAILABLE
