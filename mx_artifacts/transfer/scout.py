"""Brings sources to a transfer while it runs, and takes away those that fail."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable

from mx_artifacts.client.worker import WorkerClient
from mx_artifacts.clock import Clock
from mx_artifacts.errors import MxArtifactsError, NoFreeSlotError
from mx_artifacts.transfer.board import Board
from mx_artifacts.transfer.planner import CALL_TIMEOUT_SECONDS
from mx_artifacts.transfer.source import Source, SourceAddress

logger = logging.getLogger(__name__)

MAX_SOURCES = 4
"""Sources that are read from at once: more gain nothing (benchmarks/swarm.py)."""
MAX_FAILURES = 64
"""Sources that may fail before a transfer gives up."""
LOOK_SECONDS = (0.1, 0.1, 0.2, 0.25, 0.25, 0.5, 0.5, 1.0, 2.0)
"""How long it waits before it looks for further sources, and looks again: soon at first, as many
targets start at once; the last value holds on. A look costs the central server two listings."""
REFRESH_SECONDS = 0.05
"""How often a source that is still receiving is asked what it has by now."""

FindSources = Callable[[], Iterable[SourceAddress]]
"""Returns the sources that serve the artifact now; raises MxArtifactsError where nobody knows."""


def nobody() -> Collection[SourceAddress]:
    """Find no further sources."""
    return ()


class Scout:
    """Opens sources, each in a thread of its own, so that one that is dead holds up no other."""

    def __init__(
        self,
        board: Board,
        new_source: Callable[[SourceAddress, WorkerClient], Source],
        clock: Clock,
        *,
        serves_on: bool,
        find: FindSources,
        patience_seconds: float,
        on_failure: Callable[[SourceAddress, MxArtifactsError], None],
        on_starved: Callable[[], None],
    ) -> None:
        """`on_starved` is called once none is left and none came for `patience_seconds`."""
        self._board = board
        self._new_source = new_source
        self._clock = clock
        self._serves_on = serves_on
        self._find = find
        self._patience_seconds = patience_seconds
        self._on_failure = on_failure
        self._on_starved = on_starved
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopping = False
        self._waiting: list[SourceAddress] = []
        self._refused: list[SourceAddress] = []
        self._opening: dict[SourceAddress, WorkerClient] = {}
        self._open: list[Source] = []
        self._known: set[SourceAddress] = set()
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name="mx-scout", daemon=True)

    def start(self, first: Source, others: Iterable[SourceAddress]) -> None:
        """Open `first`, whose client is at hand, and as many of `others` as may be."""
        self._known.add(first.address)
        self._begin(first.address, first)
        self._offer(others)
        self._thread.start()

    def failed(self, source: Source, error: MxArtifactsError) -> None:
        """Hear from a reader that a source failed: it is not asked again. Any thread."""
        if self._board.drop(source):
            self._count_failure(source.address, error)
            self._wake.set()

    def stop(self) -> None:
        """Look for no more; the sources stay open for those who still read. Idempotent."""
        self._stopping = True
        self._wake.set()

    def hang_up(self) -> None:
        """Let the calls fail in which readers wait."""
        with self._lock:
            clients = [*self._opening.values(), *(source.client for source in self._open)]
        for client in clients:
            client.close()

    def close(self) -> None:
        """Disconnect from all sources. Nobody reads any more."""
        self.stop()
        self.hang_up()
        if self._thread.is_alive():
            self._thread.join(CALL_TIMEOUT_SECONDS)
        for source in self._open:
            source.close()

    # --- opening ---------------------------------------------------------------------------------

    def _offer(self, addresses: Iterable[SourceAddress]) -> None:
        new = [address for address in addresses if address not in self._known]
        self._known.update(new)
        self._waiting += new
        while self._waiting and len(self._board.sources()) + len(self._opening) < MAX_SOURCES:
            self._begin(self._waiting.pop(0), None)

    def _begin(self, address: SourceAddress, source: Source | None) -> None:
        if source is None:
            client = WorkerClient(address.endpoint, timeout_seconds=CALL_TIMEOUT_SECONDS)
            source = self._new_source(address, client)
        with self._lock:
            self._opening[address] = source.client
        threading.Thread(target=self._try_open, args=(source,), name="mx-open", daemon=True).start()

    def _try_open(self, source: Source) -> None:
        error: MxArtifactsError | None = None
        try:
            source.open(serves_on=self._serves_on)
        except NoFreeSlotError:
            self._come_again(source)
            return
        except MxArtifactsError as failure:
            error = failure
        except Exception as failure:  # gRPC's word for a channel that was closed meanwhile
            logger.debug("source %s: %s", source, failure)
        with self._lock:
            self._opening.pop(source.address, None)
            self._open.append(source)
        if error is None:
            self._board.add(source)
        elif not self._stopping:
            self._count_failure(source.address, error)
        self._wake.set()

    def _come_again(self, source: Source) -> None:
        """Try a source that is busy with others again at the next look."""
        source.close()
        with self._lock:
            self._opening.pop(source.address, None)
            self._refused.append(source.address)

    def _count_failure(self, address: SourceAddress, error: MxArtifactsError) -> None:
        with self._lock:
            self._failures += 1
        self._on_failure(address, error)

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        looked_at = self._clock.monotonic()
        pauses = iter(LOOK_SECONDS)
        look_seconds = next(pauses)
        starved_at: float | None = None
        while not (self._stopping or self._board.is_over):
            self._wake.wait(self._pause_seconds())
            self._wake.clear()
            now = self._clock.monotonic()
            self._refresh()
            self._offer(())
            is_starved = not (self._board.sources() or self._opening or self._refused)
            if is_starved or now - looked_at >= look_seconds:
                looked_at, look_seconds = now, next(pauses, look_seconds)
                self._look()
            if not is_starved or self._opening:
                starved_at = None
                continue
            starved_at = now if starved_at is None else starved_at
            given_up = now - starved_at >= self._patience_seconds
            if (given_up or self._failures >= MAX_FAILURES) and not self._board.sources():
                self._on_starved()
                return

    def _pause_seconds(self) -> float:
        growing = any(not source.is_complete for source in self._board.sources())
        return REFRESH_SECONDS if growing else LOOK_SECONDS[0]

    def _refresh(self) -> None:
        """Ask the growing sources what they have."""
        for source in self._board.sources():
            if source.is_complete:
                continue
            try:
                source.refresh()
            except MxArtifactsError as error:
                self.failed(source, error)
        self._board.news()

    def _look(self) -> None:
        with self._lock:
            self._waiting += self._refused
            self._refused.clear()
        try:
            self._offer(self._find())
        except MxArtifactsError as error:  # the transfer goes on without the central server
            logger.debug("no further source could be looked for: %s", error)
