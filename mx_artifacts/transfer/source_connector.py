"""Opens sources, each in a thread of its own, so that one that is dead holds up no other.

The thread stays with a source that is still receiving, and asks what it has by now.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from mx_artifacts.errors import MxArtifactsError, NoFreeSlotError, TransportError
from mx_artifacts.transfer.read_scheduler import ReadScheduler
from mx_artifacts.transfer.source import Source

logger = logging.getLogger(__name__)

REFRESH_SECONDS = 0.05
"""How often a source that is still receiving is asked what it has by now."""

OnFailure = Callable[[Source, MxArtifactsError], None]


class SourceConnector:
    """Opens sources and puts them on the board, until it is closed. Any thread."""

    def __init__(
        self,
        board: ReadScheduler,
        *,
        serves_on: bool,
        on_refused: OnFailure,
        on_lost: OnFailure,
        on_crash: Callable[[BaseException], None],
        on_change: Callable[[], None],
    ) -> None:
        """Open nothing yet.

        Args:
            on_refused: hears of a source that could not be opened, and is closed.
            on_lost: hears of one on the board that does not say what it has any more.
            on_crash: hears an error that is none of any source.
            on_change: called after each of these, and when one was opened.
        """
        self._board = board
        self.serves_on = serves_on
        """Whether sources hear so, of which each lets in a few such targets at once."""
        self._on_refused = on_refused
        self._on_lost = on_lost
        self._on_crash = on_crash
        self._on_change = on_change
        self._lock = threading.Lock()
        self._opening: set[Source] = set()
        self._open: set[Source] = set()
        self._closed = threading.Event()

    @property
    def count(self) -> int:
        """How many are being opened."""
        return len(self._opening)

    def begin(self, source: Source) -> None:
        """Open `source` and put it on the board; it is the opener's from here on."""
        with self._lock:
            self._opening.add(source)
        threading.Thread(target=self._run, args=(source,), name="mx-open", daemon=True).start()

    def _run(self, source: Source) -> None:
        try:
            self._open_and_keep(source)
        except BaseException as error:
            self._on_crash(error)

    def _open_and_keep(self, source: Source) -> None:
        error = self._try_open(source)
        if error is not None:
            source.close()
            if not self._closed.is_set():
                self._on_refused(source, error)
        # Only now, so that it is always seen on the way, on the board, or refused.
        with self._lock:
            self._opening.discard(source)
        self._on_change()
        if error is None:
            self._keep_asking(source)

    def _try_open(self, source: Source) -> MxArtifactsError | None:
        try:
            source.open(serves_on=self.serves_on)
            with self._lock:
                if self._closed.is_set():
                    raise TransportError(f"source {source}: nobody wants to read from it any more")
                self._open.add(source)
            self._board.add(source)
        except MxArtifactsError as error:
            return error
        except Exception as error:  # also gRPC's word for a channel that was closed meanwhile
            logger.debug("source %s cannot be opened", source, exc_info=True)
            return TransportError(f"source {source} cannot be opened: {error!r}")
        return None

    def _keep_asking(self, source: Source) -> None:
        while not (source.is_complete or self._closed.wait(REFRESH_SECONDS)):
            try:
                is_new = source.refresh()
            except NoFreeSlotError:  # too busy to tell
                continue
            except Exception as error:
                with self._lock:
                    is_over = self._closed.is_set() or source not in self._open
                if not is_over:
                    self._on_lost(source, _as_ours(source, error))
                return
            if is_new:
                self._board.news()

    def end(self, source: Source) -> None:
        """Close a source that nobody reads from."""
        with self._lock:
            self._open.discard(source)
        source.close()

    def hang_up(self) -> None:
        """Let the calls fail in which others wait, and open nothing more."""
        with self._lock:
            self._closed.set()
            sources = [*self._opening, *self._open]
        for source in sources:
            source.client.close()

    def close(self) -> None:
        """Disconnect from all sources. Nobody reads any more. Idempotent."""
        self.hang_up()
        with self._lock:
            sources = list(self._open)
            self._open.clear()
        for source in sources:
            source.close()


def _as_ours(source: Source, error: Exception) -> MxArtifactsError:
    if isinstance(error, MxArtifactsError):
        return error
    return TransportError(f"source {source} does not say what it has: {error!r}")
