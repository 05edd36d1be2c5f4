"""Finds further sources during a transfer, decides which to open when, and gives up."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from typing import Generic

from mx_artifacts.errors import MxArtifactsError, TransportError
from mx_artifacts.runtime.clock import Clock
from mx_artifacts.runtime.deadline import Standstill
from mx_artifacts.transfer.base import Connect, E, ReadableSource, SourceAddress
from mx_artifacts.transfer.source_connector import SourceConnector
from mx_artifacts.transfer.state import TransferState
from mx_artifacts.transfer.timing import TransferTiming

logger = logging.getLogger(__name__)

MAX_SOURCES = 4
"""Maximum of sources that are read from at once: more gain nothing (`benchmarks.simulate`)."""
MAX_OPEN = 16
"""The same, sources that rest because they stalled included."""
MAX_FAILURES = 64
"""Maximum of sources that may fail before a transfer gives up."""

FindSources = Callable[[], Iterable[SourceAddress]]
"""Returns the sources that serve now; raises MxArtifactsError if that cannot be found out."""


def nobody() -> Collection[SourceAddress]:
    """Find no further sources."""
    return ()


class SourceManager(Generic[E]):
    """Keeps a transfer supplied with sources, in a thread of its own."""

    def __init__(
        self,
        state: TransferState[E],
        connect: Connect[E],
        find: FindSources,
        clock: Clock,
        timing: TransferTiming,
        *,
        serves_on: bool,
        patience_seconds: float,
    ) -> None:
        """Give up when no source was left, and none was found, for `patience_seconds`."""
        self._state = state
        self._scheduler = state.scheduler
        self._candidates = state.candidates
        self._connect = connect
        self._find = find
        self._clock = clock
        self._timing = timing
        self._serves_on = serves_on
        self._patience_seconds = patience_seconds
        self._connector = SourceConnector(state, timing, serves_on=serves_on)
        self._thread = threading.Thread(target=self._run, name="mx-sources", daemon=True)

    def start(self, first: ReadableSource[E] | None, others: Iterable[SourceAddress]) -> None:
        """Open `first`, if it is connected already, and as many of `others` as may be."""
        if first is not None:
            self._candidates.know(first.address)
            self._connector.begin(first)
        self._candidates.offer(others)
        self._open_waiting()
        self._thread.start()

    def hang_up(self) -> None:
        """Let calls to sources in which readers wait fail."""
        self._connector.hang_up()

    def close(self) -> None:
        """Disconnect from all sources. No thread may read any more.

        Its thread may wait for a central server that does not answer; then it ends later by itself.
        """
        self._state.stop()
        self._connector.close()

    # --- opening ---------------------------------------------------------------------------------

    def _open_waiting(self) -> None:
        while not self._state.is_stopped and self._has_room():
            address = self._candidates.take()
            if address is None:
                return
            try:
                source = self._connect(address)
            except Exception as error:  # a central server may name any address
                what = f"source {address.endpoint!r} cannot be asked: {error!r}"
                self._state.source_refused(address, TransportError(what))
                continue
            self._connector.begin(source)

    def _has_room(self) -> bool:
        opening = self._connector.count
        has_many = len(self._scheduler.sources()) + opening >= MAX_OPEN
        return not has_many and self._scheduler.active_count() + opening < MAX_SOURCES

    def _make_room(self) -> None:
        """Leave a source that has nothing of the rest for another one that may have it."""
        if not self._candidates.has_waiting or self._scheduler.active_count() < MAX_SOURCES:
            return
        useless = self._scheduler.drop_useless()
        if useless is not None:
            self._connector.end(useless)
            self._candidates.put_last(useless.address)
            self._open_waiting()

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._manage()
        except BaseException as error:
            self._state.fail(error)

    def _manage(self) -> None:
        standstill = Standstill(self._clock)
        timing = self._timing
        looked_at, pauses = self._clock.monotonic(), iter(timing.looks)
        pause_seconds, marks_then = next(pauses), None
        while not (self._state.is_stopped or self._scheduler.is_over):
            self._state.wait_for_change(timing.looks[0])
            now = self._clock.monotonic()
            self._open_waiting()
            marks = (*self._scheduler.progress_marks(), self._candidates.lost_count)
            still_seconds = standstill.seconds(marks)
            if self._is_stuck() and marks != marks_then:  # look at once, and soon again
                pauses, pause_seconds, marks_then = iter(timing.looks), 0.0, marks
            if now - looked_at >= max(pause_seconds, timing.calm if self._is_supplied() else 0.0):
                looked_at, pause_seconds = now, next(pauses, pause_seconds)
                self._look()
                if still_seconds >= timing.stale and self._is_stuck():
                    self._make_room()
            if (
                still_seconds >= timing.busy
                and self._candidates.has_busy
                and not self._scheduler.is_moving()
            ):
                self._connector.serves_on = False
            if self._is_stuck() and self._gives_up(still_seconds):
                return

    def _is_supplied(self) -> bool:
        """Return whether the open sources suffice."""
        sources = self._scheduler.sources()
        return not self._serves_on and any(source.is_complete for source in sources)

    def _is_stuck(self) -> bool:
        """Return whether nothing is running that could make the transfer continue."""
        return not (
            self._connector.count
            or self._candidates.has_busy
            or self._scheduler.is_moving()
            or self._state.is_stopped
        )

    def _gives_up(self, still_seconds: float) -> bool:
        left = len(self._scheduler.sources())
        limit_seconds = self._patience_seconds
        if self._candidates.lost_count >= MAX_FAILURES:
            limit_seconds = 0.0
        if left:
            limit_seconds = max(limit_seconds, self._timing.stuck)
        if still_seconds < limit_seconds or self._scheduler.is_over:
            return False
        details = f"; {left} are left that lack the rest themselves" if left else ""
        self._state.starved(details)
        return True

    def _look(self) -> None:
        self._candidates.retry_busy()
        try:
            self._candidates.offer(self._find())
        except MxArtifactsError as error:  # the transfer goes on without the central server
            logger.debug("no further source could be looked for: %s", error)
        except Exception:
            logger.warning("no further source could be looked for", exc_info=True)
        self._open_waiting()
