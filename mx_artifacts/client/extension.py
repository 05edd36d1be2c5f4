"""Calls to SourceService, our own service of a worker, with core types; other peers lack it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from mx_artifacts.core.manifest import ArtifactRef
from mx_artifacts.core.member_index import MemberIndex, joined
from mx_artifacts.core.ranges import Ranges
from mx_artifacts.errors import LeaseExpiredError, MxArtifactsError, PeerLostError
from mx_artifacts.transport.base import RemoteRange
from mx_artifacts.wire import extension as wire
from mx_artifacts.wire.gen.mx_artifacts.v1 import source_pb2 as pb
from mx_artifacts.wire.status import details_of, error_from_worker

# Codes that mean "not here": no such service; not resident; no index.
_NOT_OFFERED = (
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.NOT_FOUND,
)


@dataclass(frozen=True)
class WholeLease:
    """Addresses of a source's bundles by file index, valid until the session ends. Unchecked."""

    bundles: Mapping[int, RemoteRange]
    descriptor: bytes
    """The source's agent descriptor."""


@dataclass(frozen=True)
class BlockLease:
    """Where a source put a block, encoded, until the lease ends. Unchecked claims."""

    lease_id: str
    at: RemoteRange
    descriptor: bytes
    encoding: str


class SourceExtension:
    """The extension of the source at `endpoint`, through `stub` (a SourceServiceStub).

    All methods return None where the source does not offer what they ask for, may be called from
    any thread, and raise PeerLostError and RemoteError.
    """

    def __init__(self, stub: Any, endpoint: str, timeout_seconds: float) -> None:
        self._stub = stub
        self._endpoint = endpoint
        self._timeout_seconds = timeout_seconds

    def lease_artifact(
        self, artifact: ArtifactRef, session_id: str, *, serves_on: bool
    ) -> WholeLease | None:
        """Lease all bundles at once, for an attached session.

        Raises NoFreeSlotError where this target `serves_on` what it reads, as do enough others.
        """
        request = pb.LeaseArtifactRequest(
            artifact=wire.artifact_to_wire(artifact),
            session_id=session_id,
            serves_on=serves_on,
        )
        try:
            answer = self._stub.LeaseArtifact(request, timeout=self._timeout_seconds)
        except grpc.RpcError as error:
            self._raise_unless_not_offered(error)
            return None
        bundles = {
            each.file_index: RemoteRange(each.addr, each.length, each.device_id)
            for each in answer.bundles
        }
        return WholeLease(bundles, answer.source_metadata)

    def prepare_block(
        self,
        artifact: ArtifactRef,
        session_id: str,
        block: tuple[int, int, int],
        accept: Sequence[str],
        timeout_seconds: float,
    ) -> BlockLease | None:
        """Let a source encode `block` (file index, offset, length), for an attached session.

        The lease is the caller's to release, as one of a chunk. Raises NoFreeSlotError where the
        source is busy, LeaseExpiredError where the session is over, and RecordNotFoundError.
        """
        file_index, offset, length = block
        request = pb.PrepareBlockRequest(
            artifact=wire.artifact_to_wire(artifact),
            session_id=session_id,
            file_index=file_index,
            offset=offset,
            length=length,
            accept=accept,
        )
        limit = min(timeout_seconds, self._timeout_seconds)
        try:
            answer = self._stub.PrepareBlock(request, timeout=limit)
        except grpc.RpcError as error:
            code = error.code() if isinstance(error, grpc.Call) else None
            if code is grpc.StatusCode.UNIMPLEMENTED:
                return None
            if code is grpc.StatusCode.FAILED_PRECONDITION:
                raise LeaseExpiredError(f"source {self._endpoint}: {details_of(error)}") from error
            raise error_from_worker(error, self._endpoint) from error
        except ValueError as error:  # gRPC's word for a channel that was closed meanwhile
            raise PeerLostError(f"source {self._endpoint}: {error}") from error
        at = RemoteRange(answer.addr, answer.stored_length, answer.device_id)
        return BlockLease(answer.lease_id, at, answer.source_metadata, answer.encoding)

    def report_damage(
        self, artifact: ArtifactRef, part: tuple[int, int, int], timeout_seconds: float
    ) -> bool | None:
        """Say that `part` (file index, offset, length) arrived damaged under a valid lease.

        Return whether the source found it damaged at its end; None where it cannot be asked.
        """
        file_index, offset, length = part
        request = pb.DamageReport(
            artifact=wire.artifact_to_wire(artifact),
            file_index=file_index,
            offset=offset,
            length=length,
        )
        try:
            limit = min(timeout_seconds, self._timeout_seconds)
            return bool(self._stub.ReportDamage(request, timeout=limit).is_damaged)
        except (grpc.RpcError, ValueError):  # a source of an earlier release, or gone
            return None

    def ask_for_index(self, artifact: ArtifactRef) -> Any:
        """Ask for the members of every bundle; `read_index` takes what this returns.

        Meanwhile others may be asked for other things.
        """
        request = wire.artifact_to_wire(artifact)
        return self._stub.GetMemberIndex(request, timeout=self._timeout_seconds)

    def read_index(self, call: Any, max_members: int) -> Mapping[int, MemberIndex] | None:
        """Return the members of every bundle, by file index: claims, for the caller to check.

        None also where there are more than `max_members`. Raises ManifestInvalidError, too.
        """
        pages: dict[int, list[MemberIndex]] = {}
        count = 0
        try:
            for page in call:
                pages.setdefault(page.file_index, []).append(wire.index_from_wire(page))
                count += len(page.paths)
                if count > max_members:
                    call.cancel()
                    return None
        except grpc.RpcError as error:
            self._raise_unless_not_offered(error)
            return None
        return {file_index: joined(each) for file_index, each in pages.items()}

    def availability(self, artifact: ArtifactRef) -> tuple[bool, Mapping[int, Ranges]]:
        """Return whether the source has everything, and what it has if it has not."""
        request = wire.artifact_to_wire(artifact)
        try:
            answer = self._stub.GetAvailability(request, timeout=self._timeout_seconds)
        except grpc.RpcError as error:
            self._raise_unless_not_offered(error)
            return True, {}  # who cannot tell has all of what it serves
        ranges = wire.availability_from_wire(answer)
        return ranges is None, ranges or {}

    def _raise_unless_not_offered(self, error: grpc.RpcError) -> None:
        failure: MxArtifactsError = error_from_worker(error, self._endpoint)
        if not isinstance(error, grpc.Call) or error.code() not in _NOT_OFFERED:
            raise failure from error
