"""Whether this process is a program of ours, or another program that uses our library."""

from __future__ import annotations

import contextlib
import resource

MAX_OPEN_FILES = 65_536
"""Open files that a claimed process may have at the most. A source has one for each connection."""

_claimed = False


def claim_process() -> None:
    """State that nothing but mx-artifacts matters in this process; a program calls it at its start.

    Process-wide state (Python's garbage collector, UCX's hooks, the limit of open files) is changed
    only in a claimed process. An engine that uses the library never calls it (docs/adr/0021).
    """
    global _claimed
    _claimed = True
    _raise_file_limit()


def _raise_file_limit() -> None:
    """Take as many open files as the hard limit allows: 1,024 silent peers are soon there."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def is_claimed() -> bool:
    """Return whether `claim_process` was called."""
    return _claimed
