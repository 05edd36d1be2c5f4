"""Opens sources, each in a thread of its own, so that a dead source delays no other.

If a source is still receiving, its thread continues and asks it which ranges it has now.
"""

from __future__ import annotations

import logging
import threading
from typing import Generic

from mx_artifacts.errors import MxArtifactsError, NoFreeSlotError, TransportError
from mx_artifacts.runtime.node_limits import node_limit_of
from mx_artifacts.transfer.base import E, ReadableSource
from mx_artifacts.transfer.state import TransferState
from mx_artifacts.transfer.timing import TransferTiming

logger = logging.getLogger(__name__)


class SourceConnector(Generic[E]):
    """Opens sources and reports them to the state, until it is closed. Any thread."""

    def __init__(self, state: TransferState[E], timing: TransferTiming, *, serves_on: bool) -> None:
        self._state = state
        self._timing = timing
        self.serves_on = serves_on
        """Whether sources are informed of this; each accepts a few such targets at once."""
        self._lock = threading.Lock()
        self._opening: set[ReadableSource[E]] = set()
        self._open: set[ReadableSource[E]] = set()
        self._closed = threading.Event()

    @property
    def count(self) -> int:
        """How many sources are being opened."""
        return len(self._opening)

    def begin(self, source: ReadableSource[E]) -> None:
        """Open `source` in the background; the connector owns it from now on."""
        with self._lock:
            self._opening.add(source)
        threading.Thread(target=self._run, args=(source,), name="mx-open", daemon=True).start()

    def _run(self, source: ReadableSource[E]) -> None:
        try:
            self._open_and_keep(source)
        except BaseException as error:
            self._state.fail(error)

    def _open_and_keep(self, source: ReadableSource[E]) -> None:
        error = self._try_open(source)
        if error is not None:
            source.close()
            if not self._closed.is_set():
                self._state.source_refused(source.address, error)
        # Only now, so that a source is always seen as being opened, open, or refused.
        with self._lock:
            self._opening.discard(source)
        self._state.connecting_ended()
        if error is None:
            self._keep_asking(source)

    def _try_open(self, source: ReadableSource[E]) -> MxArtifactsError | None:
        try:
            source.open(serves_on=self.serves_on)
            with self._lock:
                if self._closed.is_set():
                    raise TransportError(f"source {source}: the transfer has ended")
                self._open.add(source)
            self._state.source_opened(source)
        except MxArtifactsError as error:
            return error
        except Exception as error:  # gRPC raises ValueError for a channel that was closed meanwhile
            logger.debug("source %s cannot be opened", source, exc_info=True)
            return node_limit_of(error) or TransportError(
                f"source {source} cannot be opened: {error!r}"
            )
        return None

    def _keep_asking(self, source: ReadableSource[E]) -> None:
        while not (source.is_complete or self._closed.wait(self._timing.refresh)):
            try:
                has_more = source.refresh()
            except NoFreeSlotError:  # too busy to answer
                continue
            except Exception as error:
                with self._lock:
                    is_over = self._closed.is_set() or source not in self._open
                if not is_over:
                    self._state.source_failed(source, _as_ours(source, error))
                return
            if has_more:
                self._state.availability_changed()

    def end(self, source: ReadableSource[E]) -> None:
        """Close a source from which no thread reads."""
        with self._lock:
            self._open.discard(source)
        source.close()

    def hang_up(self) -> None:
        """Let calls to sources that are under way fail, and open nothing more."""
        with self._lock:
            self._closed.set()
            sources = [*self._opening, *self._open]
        for source in sources:
            source.hang_up()

    def close(self) -> None:
        """Disconnect from all sources. No thread may read any more. Idempotent."""
        self.hang_up()
        with self._lock:
            sources = list(self._open)
            self._open.clear()
        for source in sources:
            source.close()


def _as_ours(source: object, error: Exception) -> MxArtifactsError:
    if isinstance(error, MxArtifactsError):
        return error
    unclear = TransportError(f"source {source} did not say which ranges it has: {error!r}")
    return node_limit_of(error) or unclear
