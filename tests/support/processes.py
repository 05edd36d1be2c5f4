"""Starts `mx-artifact` in processes of its own, and makes sure that they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

COMMAND = (sys.executable, "-m", "mx_artifact_cli")
DEADLINE_SECONDS = 120.0
"""Generous: a loaded machine of two cores is no failure."""


def run_cli(*args: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command line to its end."""
    return subprocess.run(
        [*COMMAND, *args],
        env=dict(env),
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


class Service:
    """A verb that serves. `ready` is the JSON result that it prints when it does."""

    def __init__(self, process: subprocess.Popen[str], errors: Path) -> None:
        self._process = process
        self._errors = errors
        self.ready = self.expect("result")

    def expect(self, event: str) -> Any:
        """Read on until a record of that name."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            record = json.loads(line)
            if record["event"] == event:
                return record
        raise AssertionError(f"ended before {event!r}: {self.errors}")

    @property
    def errors(self) -> str:
        """What it wrote to stderr until now."""
        return self._errors.read_text()

    def send(self, number: int) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        self.send(number)
        return self._process.wait(DEADLINE_SECONDS)


@contextmanager
def serving(
    *args: str, env: Mapping[str, str], logs: Path, command: Sequence[str] = COMMAND
) -> Iterator[Service]:
    """Start a verb that serves, wait until it does, and end it with the block."""
    errors = logs / f"{args[0]}-{os.urandom(4).hex()}.err"
    with (
        errors.open("w") as stderr,
        subprocess.Popen(
            [*command, *args, "--format", "jsonl"],
            env=dict(env),
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as process,
    ):
        try:
            yield Service(process, errors)
        finally:
            process.kill()
