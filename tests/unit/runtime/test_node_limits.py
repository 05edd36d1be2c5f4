"""A limit of the node is named, wherever in the chain of causes it is."""

from __future__ import annotations

import errno
import os

import pytest

from mx_artifacts.errors import NodeLimitError, TransportError
from mx_artifacts.runtime.node_limits import node_limit_of, node_limits_named


def caused_by(cause: BaseException) -> BaseException:
    error = TransportError("a source cannot be opened")
    error.__cause__ = RuntimeError("something else")
    error.__cause__.__context__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "named", "next_step"),
    [
        (RuntimeError("can't start new thread"), "thread", "pids.max"),
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "file", "ulimit -n"),
        (OSError(errno.ENFILE, os.strerror(errno.ENFILE)), "file", "ulimit -n"),
        (MemoryError(), "memory", "memory limit"),
    ],
)
def test_a_limit_is_named_with_the_next_step(error: Exception, named: str, next_step: str) -> None:
    for each in (error, caused_by(error)):
        limit = node_limit_of(each)
        assert limit is not None
        assert named in str(limit)
        assert next_step in limit.hint()


def test_other_errors_are_none() -> None:
    assert node_limit_of(RuntimeError("no")) is None
    assert node_limit_of(OSError(errno.ENOENT, "no")) is None
    assert node_limit_of(caused_by(ValueError("no"))) is None
    circular = RuntimeError("round")
    circular.__context__ = circular
    assert node_limit_of(circular) is None


def test_a_block_raises_it_in_place_of_its_cause() -> None:
    cause = RuntimeError("can't start new thread")
    with pytest.raises(NodeLimitError) as raised, node_limits_named():
        raise cause
    assert raised.value.__cause__ is cause
    with pytest.raises(KeyError), node_limits_named():
        raise KeyError("other")
