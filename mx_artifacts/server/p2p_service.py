"""P2pService: the records, spoken over gRPC.

Deployed clients fix how failures look: a request that makes no sense is refused inside the answer
(success=false with a message, found=false), which they log with its reason. A backend that does not
answer is UNAVAILABLE, which they retry; it is never an empty list or a lost record.
"""

from __future__ import annotations

import logging
import math
import re
from dataclasses import replace

from mx_artifacts.core.foreign_text import shown
from mx_artifacts.core.identity import SOURCE_ID_LENGTH, compute_mx_source_id
from mx_artifacts.core.sources import PodIdentity, SourceStatus, WorkerRecord, status_at
from mx_artifacts.metadata.base import RecordStore
from mx_artifacts.observability.catalogue import SourcePublished
from mx_artifacts.observability.events import EventSink, ignore_events
from mx_artifacts.runtime.clock import Clock, unix_ms
from mx_artifacts.server.answers import errors_as_status
from mx_artifacts.wire import convert
from mx_artifacts.wire.gen.model_express import p2p_pb2 as pb
from mx_artifacts.wire.gen.model_express import p2p_pb2_grpc

logger = logging.getLogger(__name__)

_SOURCE_ID = re.compile(rf"[0-9a-f]{{{SOURCE_ID_LENGTH}}}")
# Becomes part of keys and object names in backends, so it must hold no separator of theirs.
_WORKER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class P2pService(p2p_pb2_grpc.P2pServiceServicer):
    """Handlers of one server; they share nothing but the record store."""

    def __init__(
        self,
        records: RecordStore,
        clock: Clock,
        heartbeat_timeout_seconds: float,
        events: EventSink = ignore_events,
    ) -> None:
        self._records = records
        self._events = events
        self._clock = clock
        self._heartbeat_timeout_ms = int(heartbeat_timeout_seconds * 1000)

    @errors_as_status
    async def PublishMetadata(
        self, request: pb.PublishMetadataRequest
    ) -> pb.PublishMetadataResponse:
        """Store a worker's record; the time is this server's, not the worker's."""
        reason = _why_not_publishable(request)
        if reason:
            logger.warning("refused to publish: %s", reason)
            return pb.PublishMetadataResponse(success=False, message=reason)
        identity = convert.identity_from_wire(request.identity)
        mx_source_id = compute_mx_source_id(identity)
        record = self._stamped(convert.worker_from_wire(request.worker))
        pod = PodIdentity(request.pod_name, request.pod_uid, request.pod_namespace)
        await self._records.put(mx_source_id, request.worker_id, identity, record, pod)
        logger.info(
            "published worker %s of source %s (%s), rank %d",
            request.worker_id,
            mx_source_id,
            identity.model_name,
            record.worker_rank,
        )
        self._events(SourcePublished(mx_source_id, request.worker_id))
        return pb.PublishMetadataResponse(
            success=True,
            message=f"published as source {mx_source_id}",
            mx_source_id=mx_source_id,
            worker_id=request.worker_id,
        )

    @errors_as_status
    async def ListSources(self, request: pb.ListSourcesRequest) -> pb.ListSourcesResponse:
        """List workers, newest first; an identity without a model name does not filter."""
        mx_source_id = None
        if request.identity.model_name:
            mx_source_id = compute_mx_source_id(convert.identity_from_wire(request.identity))
        query = convert.query_from_wire(request, mx_source_id)
        refs = await self._records.list(replace(query, fresh_since_ms=self._fresh_since_ms()))
        return pb.ListSourcesResponse(instances=map(convert.ref_to_wire, refs))

    @errors_as_status
    async def GetMetadata(self, request: pb.GetMetadataRequest) -> pb.GetMetadataResponse:
        """Return one worker's record; found=false when there is none."""
        stored = None
        if _valid_keys(request.mx_source_id, request.worker_id):
            stored = await self._records.get(request.mx_source_id, request.worker_id)
        if stored is None:
            return pb.GetMetadataResponse(
                found=False, mx_source_id=request.mx_source_id, worker_id=request.worker_id
            )
        record = stored.record
        status = status_at(record.status, record.updated_at_ms, self._fresh_since_ms())
        return pb.GetMetadataResponse(
            found=True,
            worker=convert.worker_to_wire(replace(record, status=status)),
            mx_source_id=stored.mx_source_id,
            worker_id=stored.worker_id,
            identity=convert.identity_to_wire(stored.identity),
        )

    @errors_as_status
    async def UpdateStatus(self, request: pb.UpdateStatusRequest) -> pb.UpdateStatusResponse:
        """Take a heartbeat; success=false makes the worker publish again."""
        if request.status not in pb.SourceStatus.values():
            return pb.UpdateStatusResponse(
                success=False, message=f"status {request.status} is not known"
            )
        load = request.source_load if request.HasField("source_load") else None
        known = _valid_keys(request.mx_source_id, request.worker_id) and (
            await self._records.update_status(
                request.mx_source_id,
                request.worker_id,
                request.worker_rank,
                convert.status_from_wire(request.status),
                unix_ms(self._clock),
                load if load is not None and math.isfinite(load) else None,
            )
        )
        if not known:
            where = f"worker '{shown(request.worker_id)}' of source '{shown(request.mx_source_id)}'"
            return pb.UpdateStatusResponse(
                success=False,
                message=f"no record of {where}, rank {request.worker_rank}; publish again",
            )
        return pb.UpdateStatusResponse(success=True)

    def _stamped(self, record: WorkerRecord) -> WorkerRecord:
        """Give a published record its time, and the first status when the worker states none."""
        status = record.status
        if status is SourceStatus.UNKNOWN:
            status = SourceStatus.INITIALIZING
        return replace(record, status=status, updated_at_ms=unix_ms(self._clock))

    def _fresh_since_ms(self) -> int:
        return unix_ms(self._clock) - self._heartbeat_timeout_ms


def _valid_keys(mx_source_id: str, worker_id: str) -> bool:
    return bool(_SOURCE_ID.fullmatch(mx_source_id) and _WORKER_ID.fullmatch(worker_id))


def _why_not_publishable(request: pb.PublishMetadataRequest) -> str:
    """Return what is wrong with the request, or an empty string."""
    if not request.identity.model_name:
        return "the identity has no model_name"
    for name in ("mx_source_type", "backend_framework"):
        # Numbers without a name here are a later release's, and are stored as they are.
        if (number := getattr(request.identity, name)) < 0:
            return f"{name} is {number}, but should not be negative"
    if not request.HasField("worker"):
        return "worker is missing"
    if not _WORKER_ID.fullmatch(request.worker_id):
        return (
            f"worker_id '{shown(request.worker_id)}' should be 1 to 128 letters, digits, '.', "
            "'_', '-'"
        )
    return ""
