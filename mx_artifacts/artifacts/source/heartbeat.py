"""Keeps a source's record at the central server alive, and publishes it again if it was lost."""

from __future__ import annotations

import logging
import threading
from typing import Protocol

from mx_artifacts.core.sources import SourceStatus
from mx_artifacts.errors import MxArtifactsError

logger = logging.getLogger(__name__)


class ReportedRecord(Protocol):
    """A record that a heartbeat keeps alive; `Advertisement` is one."""

    def status(self) -> SourceStatus:
        """Return the status that it should have now. Quick; raises nothing."""
        ...

    def publish(self) -> None:
        """Store the whole record as INITIALIZING."""
        ...

    def report(self, status: SourceStatus) -> bool:
        """Report the status to the server; return False if the server has no such record."""
        ...


class Heartbeat:
    """A thread that reports on one record until the end, when it reports STALE.

    An unreachable server is waited for, with one warning for each outage.
    """

    def __init__(self, record: ReportedRecord, interval_seconds: float) -> None:
        """Report nothing yet."""
        self._record = record
        self._interval_seconds = interval_seconds
        self._is_published = False
        self._status = SourceStatus.UNKNOWN
        self._in_outage = False
        self._stopping = False
        self._wake = threading.Event()
        self._has_beaten = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mx-heartbeat", daemon=True)

    def start(self) -> None:
        """Publish and report in this thread, then continue in another thread.

        After an error nothing runs, and it may be called again.

        Raises:
            BackendUnavailableError, and the errors of `ReportedRecord.publish`.
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

    def request_stop(self) -> None:
        """Let the thread end, and wait for nothing; `stop` does the rest."""
        self._stopping = True
        self._wake.set()

    def stop(self, *, tell_server: bool = True) -> bool:
        """End the thread, and report STALE unless `tell_server` is false. Idempotent.

        Return False where the server could not be reached.
        """
        self.request_stop()
        if self._thread.is_alive():
            self._thread.join()
        was_published, self._is_published = self._is_published, False
        if not (was_published and tell_server):
            return True
        try:
            self._record.report(SourceStatus.STALE)
        except MxArtifactsError as error:
            logger.warning(
                "could not mark this source STALE; the server will do that later: %s", error
            )
            return False
        return True

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
            if not self._wake.is_set():  # else the status changed meanwhile
                self._has_beaten.set()

    def _report(self) -> None:
        status = self._record.status()
        if SourceStatus.STALE in (status, self._status) and status is not self._status:
            logger.warning("this source is now %s", status.name)
        self._status = status
        if not self._is_published:
            self._publish()
        if not self._record.report(status):
            # The server or its backend came back empty (a restart, a flush).
            logger.warning("the central server has lost this source's record; publishing it again")
            self._publish()
            self._record.report(status)

    def _publish(self) -> None:
        self._record.publish()
        self._is_published = True
