"""Child processes that always end with this one: each in its own session, with output in files.

Not thread-safe: signals are held during a fork, which works only in a process of one thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from mx_artifact_cli.demo.interrupts import SIGNALS, signals_held
from mx_artifacts.errors import MxArtifactsError
from mx_artifacts.runtime.clock import Clock

T = TypeVar("T")

POLL_SECONDS = 0.05
STOP_SECONDS = 30.0
"""Maximum time for a server to end after SIGTERM [s]; it gives its readers less time."""
STDERR_LINES = 15
"""Maximum number of lines that are shown of a failed process."""

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # <linux/prctl.h>


@dataclass(frozen=True)
class Child:
    """A process that was started; it may have ended. `name` is for messages."""

    name: str
    command: Sequence[str]
    popen: subprocess.Popen[bytes]
    stdout: Path
    stderr: Path

    def exited(self) -> int | None:
        """Return the exit code, or None while the process runs. The process is not reaped."""
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        ended = os.waitid(os.P_PID, self.popen.pid, options)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def result_record(self) -> dict[str, Any] | None:
        """Return the result of a `--format jsonl` process, or None if it has not printed it yet."""
        for line in self.stdout.read_text(encoding="utf-8").splitlines(keepends=True):
            if line.endswith("\n") and line.startswith("{"):
                record: dict[str, Any] = json.loads(line)
                if record.get("event") == "result":
                    return record
        return None

    def said(self) -> list[str]:
        """Return the last lines of stderr that are not blank."""
        text = self.stderr.read_text(encoding="utf-8", errors="replace")
        return [line for line in text.splitlines() if line.strip()][-STDERR_LINES:]


def _last_words(said: Sequence[str]) -> str:
    try:
        # An error line of `mx-artifact --format jsonl` is an object.
        return str(json.loads(said[-1])["message"])
    except (IndexError, ValueError, TypeError, KeyError):
        return " / ".join(line.strip() for line in said[-3:])


class Processes:
    """Starts child processes. `close` ends them all, and all processes that they started."""

    def __init__(self, logs: Path, say: Callable[[str], None], clock: Clock) -> None:
        """`say` gets the last lines of a child that fails; the error has only the last line."""
        self._logs = logs
        self._say = say
        self._clock = clock
        self._alive: list[Child] = []
        self._prctl = ctypes.CDLL(None).prctl
        # When a child dies, its own children become ours, and we wait for them.
        self._prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> Child:
        """Start a child; stdout and stderr go to `<logs>/<name>.{out,err}`."""
        out, err = self._logs / f"{name}.out", self._logs / f"{name}.err"
        with out.open("wb") as stdout, err.open("wb") as stderr, signals_held():
            popen = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                preexec_fn=self._set_up_child,
            )
            child = Child(name, command, popen, out, err)
            self._alive.append(child)
        return child

    def _set_up_child(self) -> None:
        self._prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # in case this process is killed
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def run(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        timeout_seconds: float,
    ) -> Child:
        """Run a child and wait until it ends.

        Raises:
            MxArtifactsError: the child failed or took too long.
        """
        child = self.start(name, command, environment)
        self._expect_success(child, timeout_seconds)
        return child

    def ready(self, child: Child, timeout_seconds: float) -> dict[str, Any]:
        """Wait for the record in which `mx-artifact` says that it serves.

        Raises:
            MxArtifactsError: the child ended, or took too long.
        """

        def served() -> dict[str, Any] | None:
            code, record = child.exited(), child.result_record()
            if code is not None:
                raise self._failure(child, f"ended with exit code {code} before it served")
            return record

        return self._wait(child, served, timeout_seconds)

    def stop(self, child: Child) -> None:
        """Send SIGTERM and wait for exit code 0.

        Raises:
            MxArtifactsError: the exit code is not 0, or the child did not end.
        """
        child.popen.send_signal(signal.SIGTERM)
        self._expect_success(child, STOP_SECONDS)

    def close(self) -> None:
        """Kill all children that still run, with their process groups. Idempotent."""
        while self._alive:
            self._end(self._alive[-1])

    def _expect_success(self, child: Child, timeout_seconds: float) -> None:
        code = self._wait(child, child.exited, timeout_seconds)
        self._end(child)
        if code != 0:
            how = f"exit code {code}" if code > 0 else f"signal {-code}"
            raise self._failure(child, f"ended with {how}")

    def _failure(self, child: Child, what: str) -> MxArtifactsError:
        said = child.said()
        for line in said:
            self._say(f"{child.name} | {line}")
        message = f"{child.name}: `{shlex.join(child.command)}` {what}"
        return MxArtifactsError(
            f"{message}: {_last_words(said)}" if said else message,
            hint="run it again with --keep and look at the logs",
        )

    def _wait(self, child: Child, poll: Callable[[], T | None], timeout_seconds: float) -> T:
        deadline = self._clock.monotonic() + timeout_seconds
        while (answer := poll()) is None:
            if self._clock.monotonic() > deadline:
                raise self._failure(child, f"took longer than {timeout_seconds:.0f} s")
            self._clock.sleep(POLL_SECONDS)
        return answer

    def _end(self, child: Child) -> None:
        # The leader is not reaped yet, so no other group can have its number.
        os.killpg(child.popen.pid, signal.SIGKILL)
        child.popen.wait()
        with contextlib.suppress(ChildProcessError):  # until none of the group is left
            while True:
                os.waitpid(-child.popen.pid, 0)
        self._alive.remove(child)
