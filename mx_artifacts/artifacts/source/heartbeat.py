"""Keeps a source's record at the central server alive, and publishes it again when it is lost."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from mx_artifacts.core.sources import SourceStatus
from mx_artifacts.errors import MxArtifactsError

logger = logging.getLogger(__name__)


class StatusClient(Protocol):
    """What a heartbeat needs of the central server; `CentralClient` has it."""

    def update_status(
        self,
        mx_source_id: str,
        worker_id: str,
        worker_rank: int,
        status: SourceStatus,
        source_load: float | None = None,
    ) -> bool: ...


def always() -> bool:
    """Be so from the start."""
    return True


def unknown() -> float | None:
    """Report no load."""
    return None


class Heartbeat:
    """A thread that reports one worker: READY while `healthy()`, STALE while not, and at the end.

    Until it is `ready()`, it is INITIALIZING instead of READY.

    An unreachable server is waited for, with one warning for each outage.
    """

    def __init__(
        self,
        client: StatusClient,
        *,
        publish: Callable[[], str],
        worker_id: str,
        worker_rank: int,
        interval_seconds: float,
        healthy: Callable[[], bool],
        ready: Callable[[], bool] = always,
        load: Callable[[], float | None] = unknown,
    ) -> None:
        """Report nothing yet.

        Args:
            publish: stores the whole record as INITIALIZING, under the same `worker_id` each
                time, and returns its mx_source_id.
            healthy, ready: asked before each beat; must be quick and must not raise.
            load: likewise; 0 (idle) to 1 (full), or None.
        """
        self._client = client
        self._publish = publish
        self._worker_id = worker_id
        self._worker_rank = worker_rank
        self._interval_seconds = interval_seconds
        self._healthy = healthy
        self._ready = ready
        self._load = load
        self._mx_source_id: str | None = None
        self._status = SourceStatus.UNKNOWN
        self._in_outage = False
        self._stopping = False
        self._wake = threading.Event()
        self._has_beaten = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mx-heartbeat", daemon=True)

    def start(self) -> None:
        """Publish and report in this thread, then go on in another.

        After an error nothing runs, and it may be called again.

        Raises:
            BackendUnavailableError, and whatever `publish` raises.
        """
        self._report()
        self._thread.start()

    def beat(self) -> None:
        """Report once; an error of the server is logged, once for each outage."""
        try:
            self._report()
        except MxArtifactsError as error:
            if not self._in_outage:
                logger.warning("heartbeat failed: %s; trying again until it works", error)
            self._in_outage = True
            return
        if self._in_outage:
            logger.info("heartbeat works again")
        self._in_outage = False

    def beat_now(self, timeout_seconds: float) -> None:
        """Let the thread report at once, and wait for that, but not for a server that hangs."""
        self._has_beaten.clear()
        self._wake.set()
        self._has_beaten.wait(timeout_seconds)

    def stop(self) -> None:
        """End the thread and mark the record STALE, if the server can be reached. Idempotent."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        mx_source_id, self._mx_source_id = self._mx_source_id, None
        if mx_source_id is None:
            return
        try:
            self._update(mx_source_id, SourceStatus.STALE)
        except MxArtifactsError as error:
            logger.warning("could not mark this source STALE; the server will notice: %s", error)

    def _run(self) -> None:
        while True:
            self._wake.wait(self._interval_seconds)
            self._wake.clear()
            if self._stopping:
                return
            try:
                self.beat()
            except Exception:  # what nobody has thought of must not end the heartbeat
                logger.exception("heartbeat failed; trying again")
            if not self._wake.is_set():  # else what was to be told changed meanwhile
                self._has_beaten.set()

    def _report(self) -> None:
        status = SourceStatus.READY if self._ready() else SourceStatus.INITIALIZING
        if not self._healthy():
            status = SourceStatus.STALE
        if SourceStatus.STALE in (status, self._status) and status is not self._status:
            logger.warning("this source is now %s", status.name)
        self._status = status
        if self._mx_source_id is None:
            self._mx_source_id = self._publish()
        if not self._update(self._mx_source_id, status):
            # The server or its backend came back empty (a restart, a flush).
            logger.warning("the central server has lost this source's record; publishing it again")
            self._mx_source_id = self._publish()
            self._update(self._mx_source_id, status)

    def _update(self, mx_source_id: str, status: SourceStatus) -> bool:
        return self._client.update_status(
            mx_source_id, self._worker_id, self._worker_rank, status, self._load()
        )
