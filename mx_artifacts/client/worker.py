"""Calls to a source's worker service, with core types; one client and one channel per source."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc

from mx_artifacts.client.extension import BlockLease, SourceExtension, WholeLease
from mx_artifacts.client.session import Session
from mx_artifacts.core.foreign_text import shown
from mx_artifacts.core.manifest import ArtifactHeader, ArtifactRef, ManifestChunk
from mx_artifacts.errors import (
    LeaseExpiredError,
    ManifestInvalidError,
    PeerLostError,
    TransportNotAllowedError,
)
from mx_artifacts.transport.base import RemoteRange
from mx_artifacts.wire import convert
from mx_artifacts.wire.channel import open_channel
from mx_artifacts.wire.gen.model_express import p2p_pb2 as pb
from mx_artifacts.wire.gen.model_express import p2p_pb2_grpc
from mx_artifacts.wire.gen.mx_artifacts.v1 import source_pb2 as source_pb
from mx_artifacts.wire.gen.mx_artifacts.v1 import source_pb2_grpc
from mx_artifacts.wire.status import details_of, error_from_worker

T = TypeVar("T")

SESSION_METADATA_KEY = "mx-session-id"
TRANSPORTS_METADATA_KEY = "mx-transports"
MAX_RECEIVE_BYTES = 64 * 1024 * 1024
"""A header holds the whole file table; requests stay far below gRPC's default of 4 MiB."""

_CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_RECEIVE_BYTES),
    ("grpc.enable_http_proxy", 0),  # sources are neighbours; a proxy would not reach them
)
# Codes of an Attach that mean "speak the plain protocol": not offered, or no room for one more.
_NO_SESSIONS = (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.RESOURCE_EXHAUSTED)


@dataclass(frozen=True)
class ChunkLease:
    """What a source granted: `source` holds `chunk` until the lease ends. Unchecked claims."""

    lease_id: str
    chunk: ManifestChunk
    source: RemoteRange
    descriptor: bytes
    """The source's agent descriptor."""


class WorkerClient:
    """A source at `endpoint` (host:port). All methods may be called from any thread.

    Every call lasts at most `timeout_seconds`, or less if a method has its own timeout. Besides
    what the methods name, all raise PeerLostError (ended, unreachable, silent), RecordNotFoundError
    (it does not serve the artifact) and RemoteError.
    """

    def __init__(self, endpoint: str, *, timeout_seconds: float) -> None:
        self.endpoint = endpoint
        self._timeout_seconds = timeout_seconds
        self._channel = open_channel(endpoint, _CHANNEL_OPTIONS)
        self._worker: Any = p2p_pb2_grpc.WorkerServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self._source: Any = source_pb2_grpc.SourceServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self.extension = SourceExtension(self._source, endpoint, timeout_seconds)
        self._session: Session | None = None
        self._plain = False
        self._transports: tuple[str, ...] = ()

    def __enter__(self) -> WorkerClient:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Detach and disconnect; calls that still run fail as PeerLostError. Idempotent."""
        if self._session is not None:
            self._session.cancel()
        self._channel.close()  # ends a renewal under way, so that the join is short
        if self._session is not None:
            self._session.join()

    # --- manifest --------------------------------------------------------------------------------

    def header(self, artifact: ArtifactRef) -> ArtifactHeader:
        """Return an artifact's header.

        Raises:
            ManifestInvalidError: it is larger than MAX_RECEIVE_BYTES, or of an unknown type.
        """
        request = pb.GetArtifactManifestHeaderRequest(
            mx_source_id=artifact.mx_source_id, artifact_id=artifact.artifact_id
        )
        with self._manifest_errors():
            answer = self._worker.GetArtifactManifestHeader(request, timeout=self._timeout_seconds)
        return convert.header_from_wire(answer)

    def chunk_pages(
        self, artifact: ArtifactRef, chunk_count: int
    ) -> Iterator[tuple[ManifestChunk, ...]]:
        """Yield the pages of a chunk table that should have `chunk_count` entries.

        Every page moves on by what it holds, so there are at most `chunk_count` calls.

        Raises:
            ManifestInvalidError: a page is not the next one, is empty, or the table has another
                length. The chunks themselves are for the caller to check.
        """
        start = 0
        while start < chunk_count:
            page = self._page(artifact, start, max_chunks=0)
            start = self._next_start(page, start, chunk_count)
            yield tuple(convert.chunk_from_wire(chunk) for chunk in page.chunks)

    def check_answers(self, artifact: ArtifactRef, timeout_seconds: float | None = None) -> None:
        """Return when the source still answers, by its smallest call."""
        self._page(artifact, 0, max_chunks=1, timeout_seconds=timeout_seconds)

    def _page(
        self,
        artifact: ArtifactRef,
        start: int,
        max_chunks: int,
        timeout_seconds: float | None = None,
    ) -> pb.GetArtifactManifestChunksResponse:
        request = pb.GetArtifactManifestChunksRequest(
            mx_source_id=artifact.mx_source_id,
            artifact_id=artifact.artifact_id,
            start_chunk_index=start,
            max_chunks=max_chunks,
        )
        with self._manifest_errors():
            answer: pb.GetArtifactManifestChunksResponse = self._worker.GetArtifactManifestChunks(
                request, timeout=self._limit(timeout_seconds)
            )
        return answer

    def _next_start(
        self, page: pb.GetArtifactManifestChunksResponse, start: int, chunk_count: int
    ) -> int:
        end = start + len(page.chunks)
        last = not page.next_page_token
        for wrong, what in (
            (page.start_chunk_index != start, f"starts at {page.start_chunk_index}"),
            (not page.chunks, "is empty"),
            (end > chunk_count or (end == chunk_count and not last), "exceeds the header's count"),
            (end < chunk_count and last, f"is the last, but {chunk_count} chunks were announced"),
            (
                not last and page.next_page_token != str(end),
                f"goes on at '{shown(page.next_page_token)}'",
            ),
        ):
            if wrong:
                raise ManifestInvalidError(
                    f"source {self.endpoint}: the page of the chunk table at {start} {what}"
                )
        return end

    # --- leases ----------------------------------------------------------------------------------

    def attach(self, transports: Sequence[str] = ()) -> bool:
        """Bind later leases to this client's life, if the source can; True when they are.

        `transports` are those by which this target can read, the preferred first; none: as targets
        of the reference. The answer of a source that cannot is remembered. Call it once, before the
        first prepare.

        Raises:
            TransportNotAllowedError: the source can be read by none of them.
        """
        self._transports = tuple(transports)
        if self._plain or self._session is not None:
            return self._session is not None
        session = Session(self._source, self._timeout_seconds, self._transports)
        error = session.wait_attached()
        if error is None:
            self._session = session
            return True
        session.join()
        if session.was_silent:
            what = f"source {self.endpoint} did not answer in time"
            raise PeerLostError(what, is_silent=True)
        if isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.FAILED_PRECONDITION:
            raise TransportNotAllowedError(f"source {self.endpoint}: {details_of(error)}")
        if isinstance(error, grpc.Call) and error.code() not in _NO_SESSIONS:
            raise error_from_worker(error, self.endpoint)
        self._plain = True
        return False

    @property
    def is_detached(self) -> bool:
        """Whether the session ended although this process did not close it."""
        return self._session is not None and self._session.lost

    def check_attached(self) -> None:
        """Raise PeerLostError when the source ended, or lost, the session of this client."""
        if self.is_detached:
            raise PeerLostError(f"source {self.endpoint} is lost: its session ended")

    def lease_artifact(self, artifact: ArtifactRef, *, serves_on: bool) -> WholeLease | None:
        """Lease all of an artifact for this client's life; None where only chunks can be had.

        Raises NoFreeSlotError as `SourceExtension.lease_artifact`.
        """
        if self._session is None:
            return None
        return self.extension.lease_artifact(
            artifact, self._session.session_id, serves_on=serves_on
        )

    @property
    def transport(self) -> str:
        """The transport of all leases, once attached; "" without a session."""
        return self._session.transport if self._session is not None else ""

    @property
    def encodings(self) -> tuple[str, ...]:
        """What `prepare_block` can give, once attached."""
        return self._session.encodings if self._session is not None else ()

    @property
    def max_bytes_per_second(self) -> int:
        """What the source gives to all its targets together, once attached; 0: any number."""
        return self._session.max_bytes_per_second if self._session is not None else 0

    def prepare_block(
        self,
        artifact: ArtifactRef,
        block: tuple[int, int, int],
        accept: Sequence[str],
        timeout_seconds: float,
    ) -> BlockLease | None:
        """As `SourceExtension.prepare_block`, for this client's session; None without one."""
        if self._session is None:
            return None
        session_id = self._session.session_id
        return self.extension.prepare_block(artifact, session_id, block, accept, timeout_seconds)

    def renew_leases(self) -> int:
        """Renew the leases of this client's session; return how many there are."""
        if self._session is None:
            return 0
        request = source_pb.RenewLeasesRequest(session_id=self._session.session_id)
        return int(
            self._call(lambda timeout: self._source.RenewLeases(request, timeout=timeout)).renewed
        )

    def prepare_chunk(
        self,
        artifact: ArtifactRef,
        chunk_index: int,
        timeout_seconds: float | None = None,
    ) -> ChunkLease:
        """Lease one chunk. The caller must release the lease, even if its content is invalid.

        Raises:
            NoFreeSlotError: the source is busy; ask again later.
            LeaseExpiredError: the session is over at the source; attach with a new client.
        """
        request = pb.PrepareArtifactChunkRequest(
            mx_source_id=artifact.mx_source_id,
            artifact_id=artifact.artifact_id,
            chunk_index=chunk_index,
        )
        session = self._session
        metadata = ((TRANSPORTS_METADATA_KEY, ",".join(self._transports)),)
        if session is not None:
            metadata = ((SESSION_METADATA_KEY, session.session_id),)
        answer = self._call(
            lambda timeout: self._worker.PrepareArtifactChunk(
                request, timeout=timeout, metadata=metadata
            ),
            timeout_seconds,
        )
        source = answer.source
        return ChunkLease(
            lease_id=answer.lease_id,
            chunk=convert.chunk_from_wire(answer.chunk),
            source=RemoteRange(source.addr, source.length, source.device_id),
            descriptor=answer.source_metadata,
        )

    def release_chunk(
        self,
        artifact: ArtifactRef,
        lease_id: str,
        timeout_seconds: float | None = None,
    ) -> None:
        """Give a lease back.

        Raises:
            RecordNotFoundError, LeaseExpiredError: it had run out already, so what was read
                under it may be anything.
        """
        request = pb.ReleaseArtifactChunkRequest(
            mx_source_id=artifact.mx_source_id, artifact_id=artifact.artifact_id, lease_id=lease_id
        )
        self._call(
            lambda timeout: self._worker.ReleaseArtifactChunk(request, timeout=timeout),
            timeout_seconds,
        )

    def _call(self, call: Callable[[float], T], timeout_seconds: float | None = None) -> T:
        try:
            return call(self._limit(timeout_seconds))
        except grpc.RpcError as error:
            # Our own sources say so of nothing else; the reference's have no sessions.
            if self._session is not None and error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                raise LeaseExpiredError(f"source {self.endpoint}: {details_of(error)}") from error
            raise error_from_worker(error, self.endpoint) from error
        except ValueError as error:  # gRPC's word for a channel that was closed meanwhile
            raise PeerLostError(f"source {self.endpoint}: {error}") from error

    def _limit(self, timeout_seconds: float | None) -> float:
        limit = self._timeout_seconds
        return limit if timeout_seconds is None else min(limit, timeout_seconds)

    @contextlib.contextmanager
    def _manifest_errors(self) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:  # gRPC: message too large
                raise ManifestInvalidError(
                    f"source {self.endpoint}: its tables are too large: {details_of(error)}"
                ) from error
            raise error_from_worker(error, self.endpoint) from error
