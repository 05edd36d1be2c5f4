"""Runs `mx-artifact` in processes of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.child import Child, ended

COMMAND = (sys.executable, "-m", "mx_artifact_cli")


def last_object(text: str) -> Any:
    """Return the last line that is ours; on stderr UCX and NIXL write lines of their own."""
    return json.loads([line for line in text.splitlines() if line.startswith("{")][-1])


def run_cli(*args: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command line to its end."""
    return ended([*COMMAND, *args], env=env)


class Running(Child):
    """A command line under way. `expect` reads its records (jsonl) one by one."""

    def expect(self, event: str) -> Any:
        """Read on until a record of that name. All that it prints must be records."""
        while (line := self.line()) is not None:
            record = json.loads(line)
            if record["event"] == event:
                return record
        raise AssertionError(f"ended before {event!r}:\n{self.errors}")

    def end(self) -> tuple[int, Any]:
        """Wait for the end; return the exit code, and the result or the error."""
        code, out = self.finish()
        return code, last_object(self.errors if code else out)


class Service(Running):
    """A verb that serves. `ready` is the JSON result that it prints when it does."""

    def begin(self) -> None:
        self.ready = self.expect("result")


def running(
    *args: str,
    env: Mapping[str, str],
    logs: Path,
    command: Sequence[str] = COMMAND,
    pipe_bytes: int = -1,
) -> Running:
    """Return a command line with --format jsonl, which the block starts and ends.

    It stops when `pipe_bytes` of records were not read; -1: the system's default.
    """
    words = (*command, *args, "--format", "jsonl")
    return Running(words, env=env, logs=logs, pipe_bytes=pipe_bytes)


def serving(
    *args: str, env: Mapping[str, str], logs: Path, command: Sequence[str] = COMMAND
) -> Service:
    """Return a verb that serves, which the block starts, waits for, and ends."""
    return Service((*command, *args, "--format", "jsonl"), env=env, logs=logs)
