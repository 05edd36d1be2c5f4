"""What the central server is told of an artifact under one identity, and told anew."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from mx_artifacts.artifacts.labels import ARTIFACT_LABEL
from mx_artifacts.client.central import CentralClient
from mx_artifacts.core.identity import (
    SourceIdentity,
    compute_mx_source_id,
    unescaped_mx_source_id,
)
from mx_artifacts.core.sources import ArtifactSummary, PodIdentity, SourceStatus, WorkerRecord
from mx_artifacts.errors import ConfigurationError

logger = logging.getLogger(__name__)


class Announcement:
    """A worker's record, which a heartbeat publishes and keeps alive. Thread-safe.

    It is the heartbeat's `StatusClient` too: where an answer of the server was lost, it may hold
    what was announced or what was announced before, and the next beat settles that.
    """

    def __init__(
        self,
        client: CentralClient,
        identity: SourceIdentity,
        record: WorkerRecord,
        worker_id: str,
        pod: PodIdentity,
        rename_source: Callable[[str, str], None],
    ) -> None:
        """Tell nobody yet. `record` has an artifact.

        Args:
            rename_source: called with this node's source id and the server's, where that differs:
                from then on the artifact must be served under the server's.
        """
        self.mx_source_id = compute_mx_source_id(identity)
        self._rename_source = rename_source
        self._client = client
        self._identity = identity
        self._record = _labelled(record)
        self._worker_id = worker_id
        self._pod = pod
        self._lock = threading.Lock()
        self._status = SourceStatus.INITIALIZING
        self._in_doubt = False

    def publish(self) -> str:
        """Store the whole record as INITIALIZING; return its mx_source_id.

        Raises:
            ConfigurationError: the server computes another one, and knows not all fields.
            BackendUnavailableError, RemoteError
        """
        with self._lock:
            return self._put(SourceStatus.INITIALIZING)

    def change(self, artifact: ArtifactSummary) -> None:
        """Announce `artifact` in the place of what was announced; nobody sees none or both.

        Raises:
            BackendUnavailableError, RemoteError: the next beat announces it, unless it was
                changed back before.
        """
        with self._lock:
            self._record = _labelled(replace(self._record, artifact=artifact))
            self._in_doubt = True
            self._put(self._status)

    def update_status(
        self,
        mx_source_id: str,
        worker_id: str,
        worker_rank: int,
        status: SourceStatus,
        source_load: float | None = None,
    ) -> bool:
        """Send a heartbeat; see `CentralClient.update_status`."""
        with self._lock:
            self._status = status
            if self._in_doubt:
                self._put(status)
            return self._client.update_status(
                mx_source_id, worker_id, worker_rank, status, source_load
            )

    def _put(self, status: SourceStatus) -> str:
        record = replace(self._record, status=status)
        given = self._client.publish(self._identity, record, self._worker_id, self._pod)
        if given != self.mx_source_id:
            self._take_source_id(given)
        self._in_doubt = False
        return given

    def _take_source_id(self, given: str) -> None:
        """Go by the id that the central server computes, if only its escapes can be the reason.

        Targets ask it, and so learn that id. A server that computes another one because it does
        not know a field would file unlike caches under one id.
        """
        both = (compute_mx_source_id(self._identity), unescaped_mx_source_id(self._identity))
        if given not in both:
            raise ConfigurationError(
                f"the central server computes source id {given}, this node {self.mx_source_id}",
                hint="upgrade the older side: it does not know every field of the identity",
            )
        logger.warning(
            "the central server computes source id %s for model %r, this node %s: one of them "
            "escapes non-ASCII characters. It is published under the server's",
            given,
            self._identity.model_name,
            self.mx_source_id,
        )
        self._rename_source(self.mx_source_id, given)
        self.mx_source_id = given


def _labelled(record: WorkerRecord) -> WorkerRecord:
    assert record.artifact is not None
    label = {ARTIFACT_LABEL: record.artifact.artifact_id}
    return replace(record, topology={**record.topology, **label})
