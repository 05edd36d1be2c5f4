"""Whether this process is a program of ours, or another program that uses our library."""

from __future__ import annotations

_claimed = False


def claim_process() -> None:
    """State that nothing but mx-artifacts matters in this process; a program calls it at its start.

    Process-wide state (Python's garbage collector, UCX's hooks) is changed only in a claimed
    process. An engine that uses the library never calls it (docs/adr/0021).
    """
    global _claimed
    _claimed = True


def is_claimed() -> bool:
    """Return whether `claim_process` was called."""
    return _claimed
