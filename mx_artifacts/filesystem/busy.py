"""Temporary failures of a file system: a file is in use, or a file server has lost its handle."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TypeVar

from mx_artifacts.runtime.clock import SYSTEM_CLOCK, Clock

T = TypeVar("T")
PASSING = frozenset((errno.EBUSY, errno.ESTALE))
_PAUSES_SECONDS = (0.05, 0.1, 0.2, 0.4)
"""Between attempts: a mount that goes away, or a file server's old name for what was renamed."""


def retried(work: Callable[[], T], clock: Clock = SYSTEM_CLOCK) -> T:
    """Return the result of `work`; repeat it for at most 0.75 s if its failure may be temporary.

    Only for work that has changed nothing when it fails. Raises the last error of `work`.
    """
    for pause_seconds in _PAUSES_SECONDS:
        try:
            return work()
        except OSError as error:
            if error.errno not in PASSING:
                raise
            clock.sleep(pause_seconds)
    return work()
