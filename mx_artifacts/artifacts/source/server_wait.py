"""Waits for a central server that starts later than its publishers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from mx_artifacts.errors import BackendUnavailableError
from mx_artifacts.observability.catalogue import ServerAwaited
from mx_artifacts.observability.events import EventSink, ignore_events
from mx_artifacts.runtime.clock import SYSTEM_CLOCK, Clock
from mx_artifacts.runtime.deadline import Deadline

T = TypeVar("T")
logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
"""Interval between two attempts."""


class ServerWait:
    """Repeats calls to a central server that cannot be reached yet. One thread.

    Each call is repeated for `timeout_seconds`, 0: not at all; what it waits for is said once.
    Errors other than BackendUnavailableError end it at once.
    """

    def __init__(
        self,
        timeout_seconds: float,
        *,
        events: EventSink = ignore_events,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Wait for nothing yet.

        Events: publish.waiting (error, seconds_left).
        """
        self._timeout_seconds = timeout_seconds
        self._events = events
        self._clock = clock

    def call(self, function: Callable[[], T]) -> T:
        """Return what `function` returns once the server answers.

        Raises:
            BackendUnavailableError: the last one, after the time is over.
        """
        deadline = Deadline(self._timeout_seconds, self._clock)
        was_told = False
        while True:
            try:
                return function()
            except BackendUnavailableError as error:
                if deadline.passed:
                    raise
                if not was_told:
                    self._tell(error, deadline.remaining())
                was_told = True
            self._clock.sleep(min(RETRY_SECONDS, deadline.remaining()))

    def _tell(self, error: BackendUnavailableError, left_seconds: float) -> None:
        logger.warning(
            "%s; waiting for it, up to %.0f s more (--publish-timeout, MX_PUBLISH_TIMEOUT_SECS)",
            error,
            left_seconds,
        )
        self._events(ServerAwaited(error, left_seconds))
