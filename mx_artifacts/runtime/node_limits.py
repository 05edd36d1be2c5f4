"""Names the limit of this node that caused a Python error: threads, open files, memory."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from mx_artifacts.errors import NodeLimitError

THREADS_NEEDED = 32
"""Threads that a fetch or a quiet source needs at the most, those of gRPC included (11 were seen to
be enough for the smallest fetch)."""
FILES_NEEDED = 1024
"""Open files that a process needs: the usual limit, which suffices for some hundred targets."""

_NO_THREAD = "can't start new thread"
_MAX_CAUSES = 16


def node_limit_of(error: BaseException) -> NodeLimitError | None:
    """Return the error that names the limit behind `error`, or behind one of its causes, if any."""
    cause: BaseException | None = error
    for _ in range(_MAX_CAUSES):
        if cause is None:
            return None
        if isinstance(cause, NodeLimitError):
            return cause
        if isinstance(cause, RuntimeError) and _NO_THREAD in str(cause):
            return NodeLimitError(
                "this process cannot start another thread",
                hint=f"allow {THREADS_NEEDED} threads: raise `ulimit -u` of its user, and "
                "pids.max of its cgroup (Kubernetes: the kubelet's podPidsLimit)",
            )
        if isinstance(cause, OSError) and cause.errno in (errno.EMFILE, errno.ENFILE):
            return NodeLimitError(
                f"this process cannot open another file: {cause.strerror}",
                hint=f"allow {FILES_NEEDED} open files or more: raise `ulimit -n`",
            )
        if isinstance(cause, MemoryError):
            return NodeLimitError(
                "this process cannot get more memory",
                hint="raise the memory limit of its container, or lower "
                "MX_ARTIFACT_RESIDENT_BUDGET and MX_ARTIFACT_SLOTS",
            )
        cause = cause.__cause__ or cause.__context__
    return None


@contextmanager
def node_limits_named() -> Iterator[None]:
    """Raise NodeLimitError in place of an error of Python's that a limit of this node caused."""
    try:
        yield
    except NodeLimitError:
        raise
    except Exception as error:
        limit = node_limit_of(error)
        if limit is None:
            raise
        raise limit from error
