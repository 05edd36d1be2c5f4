"""Starts the processes of a benchmark, and makes sure that they end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mx_artifacts import settings

REPOSITORY = Path(__file__).resolve().parents[2]
_END_SECONDS = 20.0
_COMMAND_SECONDS = 900.0


class ProcessFailedError(Exception):
    """A process of the benchmark ended or answered with an error; says which, and what it wrote."""


def clean_environment(home: Path, variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a node on which nobody has set anything of ours.

    `variables` are those that it has else; by default this process's.
    """
    ours = {name for setting in settings.SETTINGS for name in setting.names}
    given = os.environ if variables is None else variables
    kept = {name: value for name, value in given.items() if name not in ours}
    return kept | {
        "HOME": str(home),
        "TMPDIR": str(home),
        "PYTHONPATH": os.pathsep.join((str(REPOSITORY), str(REPOSITORY / "cli"))),
        "MX_STATE_DIR": str(home / "state"),
    }


class Node:
    """A process that answers requests (benchmarks/harness/node.py)."""

    def __init__(self, process: subprocess.Popen[str], errors: Path) -> None:
        self._process = process
        self._errors = errors
        self.ready = self.answer()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def ask(self, do: str, **arguments: Any) -> Any:
        """Let it do something, and return its answer."""
        self.send(do, **arguments)
        return self.answer()

    def send(self, do: str, **arguments: Any) -> None:
        """Let it do something; its `answer` is to be read."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """Wait for its next answer.

        Raises:
            ProcessFailedError: it ended, or answered with an error.
        """
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.startswith("{"):
                continue  # NIXL and UCX print there too
            answer = json.loads(line)
            if "error" in answer:
                raise ProcessFailedError(f"{answer['error']}\n{self._said()}")
            return answer
        raise ProcessFailedError(f"{self._process.args!r} ended:\n{self._said()}")

    def kill(self) -> None:
        """End it at once, as `kill -9` does, and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """Take the processor from it until `resume`."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    def _said(self) -> str:
        return self._errors.read_text()[-2000:]


@contextlib.contextmanager
def node(command: Sequence[str], *, env: Mapping[str, str], logs: Path) -> Iterator[Node]:
    """Start a node; it is ready when the block begins, and gone when it ends."""
    errors = logs / f"node-{os.urandom(4).hex()}.err"
    with (
        errors.open("w") as stderr,
        subprocess.Popen(
            command,
            env=dict(env),
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as process,
    ):
        try:
            yield Node(process, errors)
        finally:
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """Close its stdin and wait; kill it when it stays."""
    assert process.stdin is not None
    process.send_signal(signal.SIGCONT)  # it may be paused
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    try:
        process.wait(_END_SECONDS)
    except BaseException as error:
        process.kill()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise


def timed(command: Sequence[str], env: Mapping[str, str] | None = None) -> float:
    """Run a command to its end, and return how long that took [s]; raises as `finished`."""
    seconds, _ = finished(command, env)
    return seconds


def finished(command: Sequence[str], env: Mapping[str, str] | None = None) -> tuple[float, str]:
    """Run a command to its end; return how long that took [s], the start included, and its stdout.

    Whatever ends this call, no process of the command's group stays.

    Raises:
        ProcessFailedError: its exit code is not 0.
    """
    started = time.perf_counter()
    with subprocess.Popen(
        command,
        env=None if env is None else dict(env),
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    ) as process:
        try:
            printed, said = process.communicate(timeout=_COMMAND_SECONDS)
            seconds = time.perf_counter() - started
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        raise ProcessFailedError(f"{command[0]}: exit code {process.returncode}\n{said[-2000:]}")
    return seconds, printed
