"""Ages records: marks silent ones STALE, and deletes old STALE ones."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from mx_artifacts.core.sources import SourceStatus
from mx_artifacts.errors import BackendUnavailableError
from mx_artifacts.metadata.base import RecordStore
from mx_artifacts.observability.catalogue import RecordsSwept
from mx_artifacts.observability.events import EventSink, ignore_events
from mx_artifacts.runtime.clock import Clock, unix_ms

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReaperTimes:
    """When a record is aged [s]; both ages count from its last heartbeat."""

    heartbeat_timeout_seconds: float
    gc_timeout_seconds: float
    scan_interval_seconds: float


@dataclass(frozen=True)
class SweepReport:
    """How many records one sweep changed."""

    marked_stale: int
    deleted: int


class Reaper:
    """Several servers may each run one over shared records: every change is conditional on the
    version that was read, so a heartbeat in between wins."""

    def __init__(
        self,
        records: RecordStore,
        clock: Clock,
        times: ReaperTimes,
        events: EventSink = ignore_events,
    ) -> None:
        self._records = records
        self._events = events
        self._clock = clock
        self._times = times

    async def run(self, stop: asyncio.Event) -> None:
        """Sweep now and at every interval until `stop`; an outage of the backend is waited out."""
        while not stop.is_set():
            try:
                await self.sweep()
            except BackendUnavailableError as error:
                logger.warning("silent workers cannot be marked STALE now: %s", error)
            try:
                await asyncio.wait_for(stop.wait(), self._times.scan_interval_seconds)
            except asyncio.TimeoutError:
                continue

    async def sweep(self) -> SweepReport:
        """Look at every record once.

        Raises:
            BackendUnavailableError: the rest is left for the next sweep.
        """
        marked = deleted = 0
        now_ms = unix_ms(self._clock)
        async for row in self._records.scan():
            age_seconds = (now_ms - row.updated_at_ms) / 1000
            key = row.mx_source_id, row.worker_id
            if row.status is not SourceStatus.STALE:
                if age_seconds > self._times.heartbeat_timeout_seconds:
                    marked += await self._records.mark_stale(*key, row.version)
            elif age_seconds > self._times.gc_timeout_seconds:
                deleted += await self._records.delete(*key, row.version)
        if marked or deleted:
            logger.info("marked %d silent workers STALE, deleted %d", marked, deleted)
            self._events(RecordsSwept(marked, deleted))
        return SweepReport(marked, deleted)
