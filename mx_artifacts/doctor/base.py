"""The result of one check of this node."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from mx_artifacts.errors import ExitCode


class Level(str, Enum):
    """How bad it is: `FAIL` is what a command would fail on, or a cache that cannot be hit."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """One finding.

    Attributes:
        name: what was looked at.
        level: how bad it is.
        what: what was found.
        next_step: what to do; "" where all is well.
        exit_code: for `FAIL`, what the command that needs it would end with.
    """

    name: str
    level: Level
    what: str
    next_step: str = ""
    exit_code: ExitCode = ExitCode.OK


def ok(name: str, what: str) -> Check:
    """Return a finding that is fine."""
    return Check(name, Level.OK, what)


def warn(name: str, what: str, next_step: str) -> Check:
    """Return a finding that may cost time or hurt later."""
    return Check(name, Level.WARN, what, next_step)


def fail(name: str, what: str, next_step: str, exit_code: ExitCode) -> Check:
    """Return a finding that has to be mended first."""
    return Check(name, Level.FAIL, what, next_step, exit_code)
