"""A source's record at the central server: published, kept alive, changed, and STALE at the end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from mx_artifacts.artifacts.labels import ARTIFACT_LABEL
from mx_artifacts.artifacts.source.heartbeat import Heartbeat
from mx_artifacts.core.identity import (
    SourceIdentity,
    compute_mx_source_id,
    unescaped_mx_source_id,
)
from mx_artifacts.core.sources import ArtifactSummary, SourceStatus, WorkerRecord
from mx_artifacts.errors import ConfigurationError

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from mx_artifacts.artifacts.source.source_worker import SourceWorker


def always() -> bool:
    """Say yes from the start."""
    return True


class Advertisement:
    """What the central server says of one artifact of a worker, under one identity. Thread-safe.

    Where an answer of the server was lost, it may hold what was advertised or what was advertised
    before; the next beat settles that.

    Attributes:
        mx_source_id: this node's id of the identity; after `start`, the server's where it differs.
    """

    def __init__(
        self,
        identity: SourceIdentity,
        record: WorkerRecord,
        worker: SourceWorker,
        *,
        is_complete: Callable[[], bool] = always,
    ) -> None:
        """Announce nothing yet. `record` has an artifact; it is INITIALIZING until complete."""
        self.mx_source_id = compute_mx_source_id(identity)
        self._identity = identity
        self._record = _labelled(record)
        self._worker = worker
        self._is_complete = is_complete
        self._lock = threading.Lock()
        self._status = SourceStatus.INITIALIZING
        self._in_doubt = False
        self._heartbeat = Heartbeat(self, worker.settings.heartbeat_interval_seconds)

    def start(self) -> None:
        """Publish the record, and report on it until `stop` or the end of the worker.

        A server that cannot be reached is waited for as the worker does. After an error nothing
        runs, but the server may have the record, which `stop` marks STALE.

        Raises:
            ConfigurationError: the server computes another source id, and knows not all fields.
            BackendUnavailableError, RemoteError
        """
        self._worker.stop_with(self)
        self._worker.server_wait.call(self._heartbeat.start)

    def change(self, artifact: ArtifactSummary) -> None:
        """Advertise `artifact` in place of the current one, in one step.

        Raises:
            BackendUnavailableError, RemoteError: the next heartbeat advertises it, unless it is
                changed back earlier.
        """
        with self._lock:
            self._record = _labelled(replace(self._record, artifact=artifact))
            self._in_doubt = True
            self._put(self._status)

    def report_now(self, timeout_seconds: float) -> None:
        """Report at once, and wait for that, but not for a server that hangs."""
        self._heartbeat.beat_now(timeout_seconds)

    def request_stop(self) -> None:
        """Let reporting end, and wait for nothing; `stop` does the rest."""
        self._heartbeat.request_stop()

    def stop(self, *, tell_server: bool = True) -> bool:
        """Report no more, and mark the record STALE if the server can be reached. Idempotent.

        In a child of fork nothing happens: the record is the parent's. Return False where the
        server could not be reached.
        """
        return not self._worker.is_of_this_process or self._heartbeat.stop(tell_server=tell_server)

    # --- what the heartbeat asks for ------------------------------------------------------------

    def status(self) -> SourceStatus:
        """Return the status that the record should have now."""
        if not (self._worker.server.is_healthy() and self._is_intact()):
            return SourceStatus.STALE
        return SourceStatus.READY if self._is_complete() else SourceStatus.INITIALIZING

    def _is_intact(self) -> bool:
        artifact = self._record.artifact
        return artifact is None or self._worker.artifacts.is_intact(
            self.mx_source_id, artifact.artifact_id
        )

    def publish(self) -> None:
        """Store the whole record as INITIALIZING; raises as `start`."""
        with self._lock:
            self._put(SourceStatus.INITIALIZING)

    def report(self, status: SourceStatus) -> bool:
        """Send a heartbeat; return False when the server has no such record."""
        with self._lock:
            self._status = status
            if self._in_doubt:
                self._put(status)
            return self._worker.client.update_status(
                self.mx_source_id,
                self._worker.worker_id,
                self._record.worker_rank,
                status,
                self._worker.server.load(),
            )

    def _put(self, status: SourceStatus) -> None:
        worker, record = self._worker, replace(self._record, status=status)
        given = worker.client.publish(self._identity, record, worker.worker_id, worker.settings.pod)
        if given != self.mx_source_id:
            self._take_source_id(given)
        self._in_doubt = False

    def _take_source_id(self, given: str) -> None:
        """Go by the id that the central server computes, if only its escapes can be the reason.

        Targets ask it, and so learn that id. A server that computes another one because it does
        not know a field would file unlike caches under one id.
        """
        both = (compute_mx_source_id(self._identity), unescaped_mx_source_id(self._identity))
        if given not in both:
            raise ConfigurationError(
                f"the central server computed the source id {given}, but this node computed "
                f"{self.mx_source_id}",
                hint="upgrade the older of the two, because it does not know every field of the "
                "identity",
            )
        logger.warning(
            "the central server computed the source id %s for model %r, but this node computed "
            "%s, because only one of them escapes non-ASCII characters; publishing under the id "
            "of the server",
            given,
            self._identity.model_name,
            self.mx_source_id,
        )
        self._worker.artifacts.rename_source(self.mx_source_id, given)
        self.mx_source_id = given


def _labelled(record: WorkerRecord) -> WorkerRecord:
    assert record.artifact is not None
    label = {ARTIFACT_LABEL: record.artifact.artifact_id}
    return replace(record, topology={**record.topology, **label})
