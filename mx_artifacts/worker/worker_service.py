"""WorkerService, the gRPC service of a source that the reference has, too."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

import grpc

from mx_artifacts.client.worker import SESSION_METADATA_KEY, TRANSPORTS_METADATA_KEY
from mx_artifacts.core.manifest import ArtifactHeader, ManifestChunk
from mx_artifacts.errors import MxArtifactsError, NoFreeSlotError, RecordNotFoundError
from mx_artifacts.memory.leases import LeaseTable
from mx_artifacts.wire import convert
from mx_artifacts.wire.gen.model_express import p2p_pb2 as pb
from mx_artifacts.wire.gen.model_express import p2p_pb2_grpc
from mx_artifacts.wire.status import code_of
from mx_artifacts.worker.admission import AdmissionControl, slot_wait
from mx_artifacts.worker.catalogue import Catalogue, ServedArtifact
from mx_artifacts.worker.sessions import Sessions

CHUNKS_PER_PAGE = 1024
"""As the reference; some 40 kB a page."""
HEARD_SECONDS = 0.25
"""What an answer may take on its way, on a machine under load."""


@dataclass(frozen=True)
class LeaseDetail:
    """What a lease is of: a chunk, or all of an artifact."""

    served: ServedArtifact
    chunk: ManifestChunk | None = None


Leases = LeaseTable[LeaseDetail]


def _abort(context: grpc.ServicerContext, error: MxArtifactsError) -> NoReturn:
    context.abort(code_of(error), str(error))
    raise AssertionError("abort raises")  # for the type checker


@contextlib.contextmanager
def translated(context: grpc.ServicerContext) -> Iterator[None]:
    """Answer the call with what the block raises."""
    try:
        yield
    except MxArtifactsError as error:
        _abort(context, error)


def release_unheard(leases: Leases, lease_id: str, context: grpc.ServicerContext) -> None:
    """Free a lease if its caller has ended or is about to give up, and so will not get the answer.

    Its session continues, so nothing else would free it before the session ends.
    """
    left_seconds = context.time_remaining()
    is_late = left_seconds is not None and left_seconds < HEARD_SECONDS
    if context.is_active() and not is_late:
        return
    with contextlib.suppress(MxArtifactsError):
        leases.release(lease_id)
    if context.is_active():
        _abort(context, NoFreeSlotError("the lease was ready only after the target's deadline"))


class WorkerService(p2p_pb2_grpc.WorkerServiceServicer):
    """Serves the artifacts of `catalogue`; a request for tensors finds none."""

    def __init__(
        self,
        catalogue: Catalogue,
        leases: Leases,
        sessions: Sessions,
        prepares: AdmissionControl,
        *,
        agent_name: str,
        worker_rank: int,
    ) -> None:
        self._catalogue = catalogue
        self._leases = leases
        self._sessions = sessions
        self._prepares = prepares
        self._agent_name = agent_name
        self._worker_rank = worker_rank
        self.draining = False
        """Set when the worker stops: no new leases, but those granted may be released."""

    def GetArtifactManifestHeader(
        self, request: pb.GetArtifactManifestHeaderRequest, context: grpc.ServicerContext
    ) -> pb.GetArtifactManifestHeaderResponse:
        with translated(context):
            served = self._catalogue.select(request.mx_source_id, request.artifact_id)
        manifest = served.manifest
        return convert.header_to_wire(
            ArtifactHeader(
                mx_source_id=served.mx_source_id,
                artifact_id=served.artifact_id,
                mx_source_type=manifest.mx_source_type,
                total_size=manifest.total_size,
                file_count=len(manifest.files),
                chunk_count=len(manifest.chunks),
                chunk_size=manifest.chunk_size,
                files=manifest.files,
                manifest_version=manifest.manifest_version,
                agent_name=self._agent_name,
                worker_rank=self._worker_rank,
            )
        )

    def GetArtifactManifestChunks(
        self, request: pb.GetArtifactManifestChunksRequest, context: grpc.ServicerContext
    ) -> pb.GetArtifactManifestChunksResponse:
        with translated(context):
            served = self._catalogue.select(request.mx_source_id, request.artifact_id)
        chunks, start = served.manifest.chunks, request.start_chunk_index
        if start > len(chunks):
            context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"page {start} is beyond {len(chunks)} chunks"
            )
        count = min(request.max_chunks or CHUNKS_PER_PAGE, CHUNKS_PER_PAGE)
        end = min(start + count, len(chunks))
        return pb.GetArtifactManifestChunksResponse(
            mx_source_id=served.mx_source_id,
            artifact_id=served.artifact_id,
            start_chunk_index=start,
            chunks=[convert.chunk_to_wire(chunk) for chunk in chunks[start:end]],
            next_page_token=str(end) if end < len(chunks) else "",
        )

    def PrepareArtifactChunk(
        self, request: pb.PrepareArtifactChunkRequest, context: grpc.ServicerContext
    ) -> pb.PrepareArtifactChunkResponse:
        if self.draining:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the source is stopping")
        metadata = dict(context.invocation_metadata())
        session_id = str(metadata.get(SESSION_METADATA_KEY, ""))
        stated = str(metadata.get(TRANSPORTS_METADATA_KEY, ""))
        with translated(context):
            transport = self._sessions.transport_of(session_id, filter(None, stated.split(",")))
            served = self._catalogue.select(request.mx_source_id, request.artifact_id)
            answer = self._prepare(served, request.chunk_index, session_id, transport, context)
        release_unheard(self._leases, answer.lease_id, context)
        return answer

    def _prepare(
        self,
        served: ServedArtifact,
        chunk_index: int,
        session_id: str,
        transport: str,
        context: grpc.ServicerContext,
    ) -> pb.PrepareArtifactChunkResponse:
        chunk = served.chunk(chunk_index)
        with self._prepares.turn(slot_wait(session_id, context)) as turn:
            turn.admit(chunk.length)
            source, give_back = served.source.lease(chunk, turn.remaining())
        lease = self._leases.grant_checked(
            session_id, LeaseDetail(served, chunk), give_back, self._sessions.check
        )
        return pb.PrepareArtifactChunkResponse(
            mx_source_id=served.mx_source_id,
            artifact_id=served.artifact_id,
            lease_id=lease.lease_id,
            chunk=convert.chunk_to_wire(chunk),
            source=pb.ArtifactChunkTransferDescriptor(
                addr=source.addr, length=source.length, device_id=source.device_id
            ),
            source_metadata=served.source.descriptors[transport],
        )

    def ReleaseArtifactChunk(
        self, request: pb.ReleaseArtifactChunkRequest, context: grpc.ServicerContext
    ) -> pb.ReleaseArtifactChunkResponse:
        with translated(context):
            released = self._leases.release(request.lease_id).detail
        return pb.ReleaseArtifactChunkResponse(
            mx_source_id=released.served.mx_source_id,
            artifact_id=released.served.artifact_id,
            chunk=None if released.chunk is None else convert.chunk_to_wire(released.chunk),
        )

    def GetTensorManifest(
        self, request: pb.GetTensorManifestRequest, context: grpc.ServicerContext
    ) -> NoReturn:
        _no_tensors(context)

    def PrepareTensorRead(
        self, request: pb.PrepareTensorReadRequest, context: grpc.ServicerContext
    ) -> NoReturn:
        _no_tensors(context)

    def ReleaseTensorRead(
        self, request: pb.ReleaseTensorReadRequest, context: grpc.ServicerContext
    ) -> NoReturn:
        _no_tensors(context)


def _no_tensors(context: grpc.ServicerContext) -> NoReturn:
    _abort(context, RecordNotFoundError("this worker serves artifacts and has no tensors"))
