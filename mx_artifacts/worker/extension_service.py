"""The source's second gRPC service, with our additions to the reference's WorkerService."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping

import grpc

from mx_artifacts.compression import ZSTD
from mx_artifacts.errors import (
    LeaseError,
    LeaseExpiredError,
    NoFreeSlotError,
    RecordNotFoundError,
    RegistrationError,
)
from mx_artifacts.transport.base import RemoteRange
from mx_artifacts.wire import extension as wire
from mx_artifacts.wire.gen.mx_artifacts.v1 import source_pb2 as pb
from mx_artifacts.wire.gen.mx_artifacts.v1 import source_pb2_grpc
from mx_artifacts.worker.admission import AdmissionControl, slot_wait
from mx_artifacts.worker.blocks import MAX_BLOCK_BYTES, Blocks
from mx_artifacts.worker.catalogue import Catalogue, ServedArtifact
from mx_artifacts.worker.sessions import Sessions
from mx_artifacts.worker.worker_service import LeaseDetail, Leases, release_unheard, translated

MAX_LEASES_SERVED_ON = 4
"""Targets that serve on what they read, and have an artifact leased as a whole at once. More would
only have their first spans later, and could read from those before them (`benchmarks.simulate`: 100
targets take 1.8 times as long as one alone so, and 6.6 times without a limit)."""

_MAX_TOLD_RATE = (1 << 64) - 1
"""What its field on the wire holds; a limit beyond is none."""


class SourceService(source_pb2_grpc.SourceServiceServicer):
    """Binds leases to the life of their targets, and leases artifacts as a whole.

    Every attached target occupies one thread.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        leases: Leases,
        sessions: Sessions,
        lease_ttl_seconds: float,
        is_draining: Callable[[], bool],
        prepares: AdmissionControl,
        blocks: Blocks | None,
        on_damage: Callable[[ServedArtifact, str], None],
        *,
        max_bytes_per_second: float | None,
    ) -> None:
        """Compress with `blocks`, or not at all.

        `on_damage` is called with an artifact when one of its chunks is not as it was sealed; it
        gets a text that says which chunk, and why.

        With a rate limit, artifacts are never leased as a whole, because one-sided reads of a whole
        artifact cannot be slowed down.
        """
        self._catalogue = catalogue
        self._leases = leases
        self._sessions = sessions
        self._lease_ttl_seconds = lease_ttl_seconds
        self._is_draining = is_draining
        self._prepares = prepares
        self._blocks = blocks
        self._on_damage = on_damage
        self._max_bytes_per_second = max_bytes_per_second
        self._served_on = threading.Semaphore(MAX_LEASES_SERVED_ON)

    def Attach(
        self, request: pb.AttachRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.AttachEvent]:
        with translated(context):
            transport = self._sessions.open(request.session_id, request.transports)
        ended = threading.Event()
        end = self._ender(request.session_id, ended)
        if not context.add_callback(end):
            end()
        limit = self._max_bytes_per_second
        yield pb.AttachEvent(
            lease_ttl_seconds=max(1, int(self._lease_ttl_seconds)),
            encodings=[ZSTD] if self._blocks is not None else [],
            max_bytes_per_second=0 if limit is None else min(int(limit), _MAX_TOLD_RATE),
            transport=transport,
        )
        if self._blocks is not None:
            self._blocks.warm_up()
        ended.wait()

    def _ender(self, session_id: str, ended: threading.Event) -> Callable[[], None]:
        def end() -> None:
            # In this order, for the second check of whoever grants a lease.
            self._sessions.end(session_id)
            self._leases.free_session(session_id)
            ended.set()

        return end

    def RenewLeases(
        self, request: pb.RenewLeasesRequest, context: grpc.ServicerContext
    ) -> pb.RenewLeasesResponse:
        renewed = self._leases.renew_session(request.session_id)
        return pb.RenewLeasesResponse(renewed=renewed)

    def LeaseArtifact(
        self, request: pb.LeaseArtifactRequest, context: grpc.ServicerContext
    ) -> pb.LeaseArtifactResponse:
        with translated(context):
            if self._is_draining():
                raise LeaseError("the source is stopping and grants no lease")
            if not request.session_id:
                raise LeaseExpiredError("only attached targets can lease a whole artifact")
            transport = self._sessions.transport_of(request.session_id)
            served = self._select(request.artifact)
            is_limited = self._max_bytes_per_second is not None
            leased = None if is_limited else served.source.lease_whole()
            if leased is None:
                context.abort(
                    grpc.StatusCode.FAILED_PRECONDITION,
                    "this artifact is not leased as a whole: lease chunks",
                )
                raise AssertionError("abort raises")
            whole, give_back = self._counted(leased) if request.serves_on else leased
            lease = self._leases.grant_checked(
                request.session_id, LeaseDetail(served), give_back, self._sessions.check
            )
        return pb.LeaseArtifactResponse(
            lease_id=lease.lease_id,
            source_metadata=served.source.descriptors[transport],
            bundles=[
                pb.ResidentBundle(
                    file_index=index, addr=at.addr, length=at.length, device_id=at.device_id
                )
                for index, at in whole.items()
            ],
        )

    def _counted(
        self, leased: tuple[Mapping[int, RemoteRange], Callable[[], None]]
    ) -> tuple[Mapping[int, RemoteRange], Callable[[], None]]:
        whole, give_back = leased
        if not self._served_on.acquire(blocking=False):
            give_back()
            raise NoFreeSlotError(
                f"{MAX_LEASES_SERVED_ON} targets that also serve already read this artifact"
            )

        def both() -> None:
            self._served_on.release()
            give_back()

        return whole, both

    def PrepareBlock(
        self, request: pb.PrepareBlockRequest, context: grpc.ServicerContext
    ) -> pb.PrepareBlockResponse:
        if self._is_draining():
            context.abort(grpc.StatusCode.UNAVAILABLE, "the source is stopping")
        if self._blocks is None or ZSTD not in request.accept:
            context.abort(
                grpc.StatusCode.UNIMPLEMENTED, "this source does not support that compression"
            )
            raise AssertionError("abort raises")
        with translated(context):
            answer = self._prepare_block(self._blocks, request, context)
        release_unheard(self._leases, answer.lease_id, context)
        return answer

    def _prepare_block(
        self, blocks: Blocks, request: pb.PrepareBlockRequest, context: grpc.ServicerContext
    ) -> pb.PrepareBlockResponse:
        session_id, index = request.session_id, request.file_index
        if not session_id:
            raise LeaseExpiredError("only attached targets can lease blocks")
        transport = self._sessions.transport_of(session_id)
        served = self._select(request.artifact)
        served.check_range(index, request.offset, request.length, MAX_BLOCK_BYTES)
        with self._prepares.turn(slot_wait(session_id, context)) as turn:
            try:
                block = blocks.lease(served, index, request.offset, request.length, turn)
            except RegistrationError as error:  # what lies in memory can still be read
                context.abort(grpc.StatusCode.UNIMPLEMENTED, f"no memory to compress to: {error}")
                raise AssertionError("abort raises") from None
        lease = self._leases.grant_checked(
            session_id, LeaseDetail(served), block.give_back, self._sessions.check
        )
        return pb.PrepareBlockResponse(
            lease_id=lease.lease_id,
            source_metadata=block.descriptors[transport],
            addr=block.at.addr,
            device_id=block.at.device_id,
            stored_length=block.at.length,
            encoding=block.encoding,
        )

    def GetMemberIndex(
        self, request: pb.Artifact, context: grpc.ServicerContext
    ) -> Iterator[pb.MemberIndexPage]:
        with translated(context):
            served = self._select(request)
            if not served.indexes:
                raise RecordNotFoundError(
                    f"artifact {served.artifact_id} has no member index at this source"
                )
        yield from served.encoded_indexes.pages

    def GetAvailability(
        self, request: pb.Artifact, context: grpc.ServicerContext
    ) -> pb.Availability:
        with translated(context):
            served = self._select(request)
        return wire.availability_to_wire(served.source.available())

    def ReportDamage(
        self, request: pb.DamageReport, context: grpc.ServicerContext
    ) -> pb.DamageAnswer:
        with translated(context):
            served = self._select(request.artifact)
            index, offset, length = request.file_index, request.offset, request.length
            served.check_range(index, offset, length, served.manifest.chunk_size)
            with self._prepares.turn(slot_wait("", context)):
                damage = served.damage_in(index, offset, length)
        if damage:
            self._on_damage(served, damage)
        return pb.DamageAnswer(is_damaged=bool(damage))

    def _select(self, artifact: pb.Artifact) -> ServedArtifact:
        return self._catalogue.select(artifact.mx_source_id, artifact.artifact_id)
