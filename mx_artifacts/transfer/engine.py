"""Receives one artifact from one source: plan, then pipeline. All or nothing."""

from __future__ import annotations

import random

from mx_artifacts.client.worker import WorkerClient
from mx_artifacts.clock import SYSTEM_CLOCK, Clock
from mx_artifacts.core.manifest import ArtifactManifest, ManifestChunk
from mx_artifacts.errors import (
    LeaseError,
    MxArtifactsError,
    ReadTimeoutError,
    TransportError,
)
from mx_artifacts.memory.pool import BufferPool
from mx_artifacts.observability.events import Event, EventSink, drop
from mx_artifacts.transfer.deadline import SLOW_HINT, Deadline
from mx_artifacts.transfer.pipeline import Pipeline, Target
from mx_artifacts.transfer.plan import check_header, check_tables
from mx_artifacts.transfer.receiver import Receiver
from mx_artifacts.transport.base import Transport

CALL_TIMEOUT_SECONDS = 10.0
"""Bound of one call to a source; above the time that it lets a target wait for a slot."""
STOP_TIMEOUT_SECONDS = 3.0
"""How long a failed transfer waits for its threads to give leases back, before it hangs up."""


def fetch_artifact(
    endpoint: str,
    mx_source_id: str,
    artifact_id: str,
    transport: Transport,
    receiver: Receiver,
    *,
    timeout_seconds: float,
    max_inflight_chunks: int,
    events: EventSink = drop,
    clock: Clock = SYSTEM_CLOCK,
    rng: random.Random | None = None,
) -> ArtifactManifest:
    """Receive an artifact from the source at `endpoint`; return its manifest.

    Nothing is asked for before header and chunk table hash to `artifact_id` (empty: the only one
    of this source, whose id is then the source's word), and `receiver` agrees. Blocks for
    `timeout_seconds` at most, and some seconds more to end threads. Registers
    `max_inflight_chunks` buffers of one chunk each, and runs as many threads.

    Events: transfer.started (total_bytes, chunk_count), transfer.chunk (length_bytes) from any
    thread, transfer.finished (total_bytes).

    Raises:
        ManifestInvalidError, ArtifactIdMismatchError, ChunkChecksumError: the source's data is
            wrong.
        NoFreeSlotError: it was busy all the time.
        PeerLostError, ReadTimeoutError, TransportError, RemoteError, RecordNotFoundError
        RegistrationError: no memory for the buffers here.
        MxArtifactsError: whatever `receiver` raises.
    """
    deadline = Deadline(timeout_seconds, clock)
    with WorkerClient(
        endpoint, timeout_seconds=min(CALL_TIMEOUT_SECONDS, timeout_seconds)
    ) as client:
        manifest = _plan(client, mx_source_id, artifact_id, deadline)
        wanted = receiver.begin(manifest)
        chunks = tuple(chunk for chunk in manifest.chunks if chunk.file_index in wanted)
        size = {"total_bytes": sum(c.length for c in chunks), "chunk_count": len(chunks)}
        events(Event("transfer.started", size))
        if chunks:
            target = Target(
                client=client,
                mx_source_id=mx_source_id,
                artifact_id=manifest.artifact_id(),
                transport=transport,
                receiver=receiver,
                deadline=deadline,
                rng=rng or random.Random(),  # noqa: S311 - jitter, not a secret
                events=events,
            )
            _receive(target, chunks, max_inflight_chunks)
        receiver.finish()
    events(Event("transfer.finished", size))
    return manifest


def _plan(
    client: WorkerClient, mx_source_id: str, artifact_id: str, deadline: Deadline
) -> ArtifactManifest:
    header = client.header(mx_source_id, artifact_id)
    chunk_count = check_header(header, mx_source_id, artifact_id)
    chunks: list[ManifestChunk] = []
    for page in client.chunk_pages(mx_source_id, header.artifact_id, chunk_count):
        chunks += page
        if deadline.passed:
            raise ReadTimeoutError(
                f"source {client.endpoint} gave {len(chunks)} of {chunk_count} entries of its "
                f"chunk table in {deadline.budget_seconds:g} s",
                hint=SLOW_HINT,
            )
    return check_tables(header, chunks, artifact_id)


def _receive(target: Target, chunks: tuple[ManifestChunk, ...], max_inflight_chunks: int) -> None:
    if max_inflight_chunks <= 0:
        raise ValueError(f"{max_inflight_chunks} chunks in flight make no sense")
    threads = min(max_inflight_chunks, len(chunks))
    pool = BufferPool(target.transport, threads, max(chunk.length for chunk in chunks))
    pipeline = Pipeline(target, chunks, pool, threads)
    try:
        target.client.attach()
        pipeline.run()
    except (TransportError, LeaseError) as error:
        raise _with_progress(error, target.client.endpoint, pipeline) from error
    finally:
        target.receiver.stop()
        if not pipeline.close(STOP_TIMEOUT_SECONDS):
            target.client.close()  # fails the calls in which threads wait
            pipeline.close(STOP_TIMEOUT_SECONDS)
        pool.close()  # buffers that a read may still reach stay mapped


def _with_progress(
    error: TransportError | LeaseError, endpoint: str, pipeline: Pipeline
) -> MxArtifactsError:
    """Return an error of the same class that names the source and how far it got."""
    where = "" if endpoint in str(error) else f"source {endpoint}: "
    return type(error)(f"{where}{error} ({pipeline.progress()})", hint=error.hint())
