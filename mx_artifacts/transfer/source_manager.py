"""Brings sources to a transfer while it runs, and takes away those that fail."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from mx_artifacts.client.worker import WorkerClient
from mx_artifacts.errors import (
    LeaseExpiredError,
    MxArtifactsError,
    NoFreeSlotError,
    TransportError,
)
from mx_artifacts.runtime.clock import Clock
from mx_artifacts.runtime.deadline import Standstill
from mx_artifacts.transfer.artifact_tables import CALL_TIMEOUT_SECONDS
from mx_artifacts.transfer.read_scheduler import ReadScheduler
from mx_artifacts.transfer.source import Source, SourceAddress
from mx_artifacts.transfer.source_connector import SourceConnector
from mx_artifacts.transfer.source_health import SourceHealth

logger = logging.getLogger(__name__)

MAX_SOURCES = 4
"""Sources that are read from at once: more gain nothing (benchmarks/harness/swarm.py)."""
MAX_OPEN = 16
"""The same with those that rest, since they stalled."""
MAX_FAILURES = 64
"""Sources that may fail before a transfer gives up."""
LOOK_SECONDS = (0.1, 0.1, 0.2, 0.25, 0.25, 0.5, 0.5, 1.0, 2.0)
"""How long it waits before it looks for further sources, and looks again: soon at first, as many
targets start at once; the last value holds on. A look costs the central server two listings."""
CALM_SECONDS = 1.0
"""The least between two looks of a target that only reads, and has a source of everything: of what
others could add it hears soon enough, and sixteen such targets asked the central server a hundred
times in four seconds."""
STUCK_SECONDS = 30.0
"""How long to wait for what no source has by now, while none of them receives any more."""
BUSY_SECONDS = 20.0
"""How long a target that serves on waits its turn while nothing comes; then it does not say so, as
those before it may be stuck for ever."""
STALE_SECONDS = 1.0
"""After this, sources that have nothing of what lacks make room for others."""

FindSources = Callable[[], Iterable[SourceAddress]]
"""Returns the sources that serve the artifact now; raises MxArtifactsError where nobody knows."""


def nobody() -> Collection[SourceAddress]:
    """Find no further sources."""
    return ()


@dataclass(frozen=True)
class Verdicts:
    """Who hears how it goes.

    Attributes:
        on_failure: hears what a source failed by.
        on_starved: hears, once, that nobody is left to read the rest from, and more about that.
        on_crash: hears an error that is none of any source.
    """

    on_failure: Callable[[SourceAddress, MxArtifactsError], None]
    on_starved: Callable[[str], None]
    on_crash: Callable[[BaseException], None]


class SourceManager:
    """Looks for sources, and decides which are opened when."""

    def __init__(
        self,
        board: ReadScheduler,
        new_source: Callable[[SourceAddress, WorkerClient], Source],
        clock: Clock,
        verdicts: Verdicts,
        *,
        serves_on: bool,
        find: FindSources,
        patience_seconds: float,
    ) -> None:
        """Give up when nobody was left, and nobody came, for `patience_seconds`."""
        self._board = board
        self._new_source = new_source
        self._clock = clock
        self._verdicts = verdicts
        self._serves_on = serves_on
        self._find = find
        self._patience_seconds = patience_seconds
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopping = False
        self._waiting: deque[SourceAddress] = deque()
        self._busy: list[SourceAddress] = []
        self._known: set[SourceAddress] = set()
        self._failed = SourceHealth(clock)
        self._lost: set[Source] = set()
        self._reopened: set[SourceAddress] = set()
        self._opener = SourceConnector(
            board,
            serves_on=serves_on,
            on_refused=self._refused,
            on_lost=self.failed,
            on_crash=verdicts.on_crash,
            on_change=self._wake.set,
        )
        self._thread = threading.Thread(target=self._run, name="mx-scout", daemon=True)

    def start(self, first: Source, others: Iterable[SourceAddress]) -> None:
        """Open `first`, whose client is at hand, and as many of `others` as may be."""
        self._known.add(first.address)
        self._opener.begin(first)
        self._offer(others)
        self._open_waiting()
        self._thread.start()

    def failed(self, source: Source, error: MxArtifactsError) -> None:
        """Hear from a reader that a source failed. Any thread, several for one source.

        One that ended our session may be well, as it does so too when this node is stopped for a
        while; so it is opened again at once, if it delivered or this is the first time.
        """
        with self._lock:
            if source in self._lost:
                return
            self._lost.add(source)
        forgot_us = source.client.is_detached or isinstance(error, LeaseExpiredError)
        may_deliver = self._board.has_delivered(source) or source.address not in self._reopened
        if forgot_us and may_deliver:
            with self._lock:
                self._reopened.add(source.address)
                self._waiting.appendleft(source.address)
        else:
            self._count_failure(source.address, error)
        self._board.drop(source)  # only now: it shall not look as if nobody ever failed
        self._wake.set()

    def stop(self) -> None:
        """Look for no more; the sources stay open for those who still read. Idempotent."""
        self._stopping = True
        self._wake.set()

    def hang_up(self) -> None:
        """Let the calls fail in which readers wait."""
        self._opener.hang_up()

    def close(self) -> None:
        """Disconnect from all sources. Nobody reads any more.

        The thread may be asking a central server that does not answer: it ends by itself.
        """
        self.stop()
        self._opener.close()

    # --- opening ---------------------------------------------------------------------------------

    def _offer(self, addresses: Iterable[SourceAddress]) -> None:
        """Open `addresses` when there is room; those that failed are left alone for a while."""
        found = list(addresses)
        new = [address for address in found if address not in self._known]
        again = [address for address in found if self._failed.take_for_retry(address)]
        with self._lock:
            self._known.update(new)
            self._waiting += [*new, *again]

    def _open_waiting(self) -> None:
        while not self._stopping and self._has_room():
            with self._lock:
                if not self._waiting:
                    return
                address = self._waiting.popleft()
            try:
                client = WorkerClient(address.endpoint, timeout_seconds=CALL_TIMEOUT_SECONDS)
            except Exception as error:  # a central server may tell anything
                what = f"source {address.endpoint!r} cannot be asked: {error!r}"
                self._count_failure(address, TransportError(what))
                continue
            self._opener.begin(self._new_source(address, client))

    def _has_room(self) -> bool:
        opening = self._opener.count
        many = len(self._board.sources()) + opening >= MAX_OPEN
        return not many and self._board.active_count() + opening < MAX_SOURCES

    def _refused(self, source: Source, error: MxArtifactsError) -> None:
        if isinstance(error, NoFreeSlotError):  # it is tried again at the next look
            with self._lock:
                self._busy.append(source.address)
        else:
            self._count_failure(source.address, error)

    def _count_failure(self, address: SourceAddress, error: MxArtifactsError) -> None:
        self._failed.add(address, error)
        self._verdicts.on_failure(address, error)

    def _make_room(self) -> None:
        """Leave a source that has nothing of what lacks for one that may have it."""
        if not self._waiting or self._board.active_count() < MAX_SOURCES:
            return
        useless = self._board.drop_useless()
        if useless is not None:
            self._opener.end(useless)
            with self._lock:
                self._waiting.append(useless.address)
            self._open_waiting()

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._scout()
        except BaseException as error:
            self._verdicts.on_crash(error)

    def _scout(self) -> None:
        standstill = Standstill(self._clock)
        looked_at, pauses = self._clock.monotonic(), iter(LOOK_SECONDS)
        look_seconds, marks_then = next(pauses), None
        while not (self._stopping or self._board.is_over):
            self._wake.wait(LOOK_SECONDS[0])
            self._wake.clear()
            now = self._clock.monotonic()
            self._open_waiting()
            marks = (*self._board.marks(), len(self._failed))
            waited_seconds = standstill.seconds(marks)
            if self._is_hopeless() and marks != marks_then:  # at once, and soon again
                pauses, look_seconds, marks_then = iter(LOOK_SECONDS), 0.0, marks
            if now - looked_at >= max(look_seconds, CALM_SECONDS if self._is_calm() else 0.0):
                looked_at, look_seconds = now, next(pauses, look_seconds)
                self._look()
                if waited_seconds >= STALE_SECONDS and self._is_hopeless():
                    self._make_room()
            if waited_seconds >= BUSY_SECONDS and self._busy and not self._board.is_moving():
                self._opener.serves_on = False
            if self._is_hopeless() and self._is_given_up(waited_seconds):
                return

    def _is_calm(self) -> bool:
        """Tell whether what is open would do."""
        sources = self._board.sources()
        return not self._serves_on and any(source.is_complete for source in sources)

    def _is_hopeless(self) -> bool:
        """Tell whether nothing is under way by which the transfer could go on."""
        return not (self._opener.count or self._busy or self._board.is_moving() or self._stopping)

    def _is_given_up(self, waited_seconds: float) -> bool:
        left = len(self._board.sources())
        limit_seconds = self._patience_seconds
        if len(self._failed) >= MAX_FAILURES:
            limit_seconds = 0.0
        if left:
            limit_seconds = max(limit_seconds, STUCK_SECONDS)
        if waited_seconds < limit_seconds or self._board.is_over:
            return False
        lacking = f"; {left} are left that lack the rest themselves" if left else ""
        self._verdicts.on_starved(lacking)
        return True

    def _look(self) -> None:
        with self._lock:
            self._waiting += self._busy
            self._busy.clear()
        try:
            self._offer(self._find())
        except MxArtifactsError as error:  # the transfer goes on without the central server
            logger.debug("no further source could be looked for: %s", error)
        except Exception:
            logger.warning("no further source could be looked for", exc_info=True)
        self._open_waiting()
