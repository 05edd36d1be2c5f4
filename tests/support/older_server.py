"""A central server of another house: it ignores filters, hashes otherwise, or fails, as it is told.

A real gRPC server with the wire's messages, for what our own server never does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc

from mx_artifacts.core.identity import SourceIdentity, compute_mx_source_id
from mx_artifacts.wire import convert
from mx_artifacts.wire.gen.model_express import health_pb2, health_pb2_grpc, p2p_pb2_grpc
from mx_artifacts.wire.gen.model_express import p2p_pb2 as pb


@dataclass
class OlderServer(p2p_pb2_grpc.P2pServiceServicer):
    """Keeps records, and lists them in the order in which they were first published.

    Attributes:
        source_id: how it hashes an identity.
        ignores_status: lists records of every status.
        failing: ids of workers whose records cannot be read.
        read: ids of workers whose records were asked for.
    """

    source_id: Callable[[SourceIdentity], str] = compute_mx_source_id
    ignores_status: bool = False
    failing: set[str] = field(default_factory=set)
    read: list[str] = field(default_factory=list)
    records: dict[tuple[str, str], pb.PublishMetadataRequest] = field(default_factory=dict)
    address: str = ""

    def PublishMetadata(
        self, request: pb.PublishMetadataRequest, context: grpc.ServicerContext
    ) -> pb.PublishMetadataResponse:
        source_id = self.source_id(convert.identity_from_wire(request.identity))
        request.worker.updated_at = len(self.records) + 1
        self.records[source_id, request.worker_id] = request
        return pb.PublishMetadataResponse(
            success=True, mx_source_id=source_id, worker_id=request.worker_id
        )

    def ListSources(
        self, request: pb.ListSourcesRequest, context: grpc.ServicerContext
    ) -> pb.ListSourcesResponse:
        wanted = None
        if request.identity.model_name:
            wanted = self.source_id(convert.identity_from_wire(request.identity))
        return pb.ListSourcesResponse(
            instances=[
                pb.SourceInstanceRef(
                    mx_source_id=source_id,
                    worker_id=worker_id,
                    model_name=record.identity.model_name,
                    worker_rank=record.worker.worker_rank,
                    updated_at=record.worker.updated_at,
                )
                for (source_id, worker_id), record in self.records.items()
                if wanted in (None, source_id)
                and (self.ignores_status or record.worker.status == request.status_filter)
            ]
        )

    def GetMetadata(
        self, request: pb.GetMetadataRequest, context: grpc.ServicerContext
    ) -> pb.GetMetadataResponse:
        self.read.append(request.worker_id)
        if request.worker_id in self.failing:
            context.abort(grpc.StatusCode.INTERNAL, "the record is damaged")
        record = self.records.get((request.mx_source_id, request.worker_id))
        if record is None:
            return pb.GetMetadataResponse(found=False)
        return pb.GetMetadataResponse(
            found=True,
            worker=record.worker,
            mx_source_id=request.mx_source_id,
            worker_id=request.worker_id,
            identity=record.identity,
        )

    def UpdateStatus(
        self, request: pb.UpdateStatusRequest, context: grpc.ServicerContext
    ) -> pb.UpdateStatusResponse:
        record = self.records.get((request.mx_source_id, request.worker_id))
        if record is not None:
            record.worker.status = request.status
        return pb.UpdateStatusResponse(success=record is not None)


class _Health(health_pb2_grpc.HealthServiceServicer):
    def GetHealth(
        self, request: health_pb2.HealthRequest, context: grpc.ServicerContext
    ) -> health_pb2.HealthResponse:
        return health_pb2.HealthResponse(version="0", status="ok")


@contextmanager
def running_older_server(server: OlderServer) -> Iterator[OlderServer]:
    """Serve for the body; `address` is then where."""
    grpc_server = grpc.server(futures.ThreadPoolExecutor(8))
    p2p_pb2_grpc.add_P2pServiceServicer_to_server(server, grpc_server)  # type: ignore[no-untyped-call]
    health_pb2_grpc.add_HealthServiceServicer_to_server(  # type: ignore[no-untyped-call]
        _Health(), grpc_server
    )
    server.address = f"127.0.0.1:{grpc_server.add_insecure_port('127.0.0.1:0')}"
    grpc_server.start()
    try:
        yield server
    finally:
        grpc_server.stop(None).wait()
