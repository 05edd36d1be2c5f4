"""The state of a running transfer: its threads report to it, and wait on it instead of each other.

Three sorts of threads use it: those that read (`pipeline.py`), those that open sources
(`source_connector.py`) and the one that looks for sources (`source_manager.py`).
"""

from __future__ import annotations

import threading
from typing import Generic

from mx_artifacts.errors import (
    LeaseExpiredError,
    MxArtifactsError,
    NoFreeSlotError,
    OtherTransportError,
)
from mx_artifacts.transfer.base import E, ReadableSource, Sink, SourceAddress
from mx_artifacts.transfer.candidates import Candidates
from mx_artifacts.transfer.read_scheduler import ReadScheduler
from mx_artifacts.transfer.source_failures import SourceFailures

_MAY_BE_WELL = (LeaseExpiredError, OtherTransportError)


class TransferState(Generic[E]):
    """Work, sources and the outcome of one transfer. Any thread."""

    def __init__(
        self,
        scheduler: ReadScheduler[E],
        candidates: Candidates,
        failures: SourceFailures,
        sink: Sink[E],
    ) -> None:
        self.scheduler = scheduler
        self.candidates = candidates
        self.failures = failures
        self._sink = sink
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._over = threading.Event()
        self._changed = threading.Event()
        self._error: BaseException | None = None
        self._lost: set[ReadableSource[E]] = set()
        self._reopened: set[SourceAddress] = set()

    # --- sources ---------------------------------------------------------------------------------

    def source_opened(self, source: ReadableSource[E]) -> None:
        """Read from `source` too."""
        self.scheduler.add(source)
        self._changed.set()

    def source_refused(self, address: SourceAddress, error: MxArtifactsError) -> None:
        """Note that a source could not be opened."""
        if isinstance(error, NoFreeSlotError):
            self.candidates.note_busy(address)
        elif isinstance(error, OtherTransportError) and self._is_first(address):
            self.candidates.put_first(address)
        else:
            self._count_failure(address, error)
        self._changed.set()

    def source_failed(self, source: ReadableSource[E], error: MxArtifactsError) -> None:
        """Read no more from `source`; several threads may report one source.

        A source that ended our session may be well, as it also does so when this node was stopped
        for a while; so it is opened again at once, if it delivered or this is the first time. So is
        one that the preferred transport does not reach.
        """
        with self._lock:
            if source in self._lost:
                return
            self._lost.add(source)
            may_be_well = source.is_detached or isinstance(error, _MAY_BE_WELL)
            is_first = source.address not in self._reopened
            if may_be_well:
                self._reopened.add(source.address)
        if may_be_well and (is_first or self.scheduler.has_delivered(source)):
            self.candidates.put_first(source.address)
        else:
            self._count_failure(source.address, error)
        self.scheduler.drop(source)  # only now: it must not look as if no source ever failed
        self._changed.set()

    def _is_first(self, address: SourceAddress) -> bool:
        """Return whether a source is opened again for the first time."""
        with self._lock:
            is_first = address not in self._reopened
            self._reopened.add(address)
        return is_first

    def _count_failure(self, address: SourceAddress, error: MxArtifactsError) -> None:
        self.candidates.note_lost(address, error)
        self.failures.add(address, error)

    def availability_changed(self) -> None:
        """Note that a source has more extents than before."""
        self.scheduler.availability_changed()

    def connecting_ended(self) -> None:
        """Note that one source fewer is being opened."""
        self._changed.set()

    def wait_for_change(self, timeout_seconds: float) -> None:
        """Wait until something was reported of a source, or for `timeout_seconds`."""
        self._changed.wait(timeout_seconds)
        self._changed.clear()

    # --- the outcome -----------------------------------------------------------------------------

    @property
    def is_stopped(self) -> bool:
        """Whether all threads should end."""
        return self._stop.is_set()

    def wait_stopped(self, seconds: float) -> None:
        """Wait for `seconds`, or until all threads should end."""
        self._stop.wait(seconds)

    def fail(self, error: BaseException) -> None:
        """End the transfer by `error`, unless another error was first."""
        with self._lock:
            self._error = self._error or error
        self.stop()
        self._over.set()

    def starved(self, details: str) -> None:
        """End the transfer because no source is left for the rest; `details` says more."""
        self.fail(self.failures.as_error(self.progress() + details))

    def readers_ended(self) -> None:
        """Note that no thread reads any more."""
        self._over.set()

    def stop(self) -> None:
        """Ask all threads to end. Idempotent."""
        self._stop.set()
        self.scheduler.close()
        self._sink.stop()
        self._changed.set()

    def wait_outcome(self, timeout_seconds: float) -> bool:
        """Wait until no thread reads any more; return whether every extent was written.

        Raises:
            BaseException: the error that ended the transfer.
        """
        self._over.wait(timeout_seconds)
        if self._error is not None:
            raise self._error
        return self.scheduler.done == self.scheduler.total

    def progress(self) -> str:
        """Return how much was received, for messages."""
        done, total = self.scheduler.done, self.scheduler.total
        return f"{done} of {total} parts, {self.scheduler.done_bytes} bytes arrived"
