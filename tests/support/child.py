"""The one way in which tests start a process: it is talked to by lines, and gone with its block.

    with Child([sys.executable, "-m", "tests.support.peer_process", …]) as child:
        answer = child.answer()
        child.tell("go")

No wait lasts for ever, and whatever fails shows what the process wrote to its stderr.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, TypeVar

REPOSITORY = Path(__file__).parents[2]
DEADLINE_SECONDS = 120.0
"""Maximum wait for a line or an end. Generous: a loaded machine of two cores is no failure."""
_READ_BYTES = 4096
"""Maximum size of one read: a process with a small pipe stops when it is not read."""

Started = TypeVar("Started", bound="Child")


def our_environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return `variables`, by default this process's, with our packages where Python finds them."""
    given = os.environ if variables is None else variables
    places = (str(REPOSITORY), str(REPOSITORY / "cli"), given.get("PYTHONPATH", ""))
    return {**given, "PYTHONPATH": os.pathsep.join(filter(None, places))}


class Child:
    """A process that runs for as long as the block lasts, with all that it starts in its group."""

    process: subprocess.Popen[bytes]

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path = REPOSITORY,
        logs: Path | None = None,
        pipe_bytes: int = -1,
    ) -> None:
        """Say what the block starts.

        `env` is all of its environment, by default `our_environment()`. Its stderr is kept in a
        file in `logs`, where that is given. It stops when `pipe_bytes` of its stdout were not read;
        -1: the system's default.
        """
        self._command = [str(word) for word in command]
        self._env = our_environment() if env is None else dict(env)
        self._cwd = cwd
        self._logs = logs
        self._pipe_bytes = pipe_bytes
        self._unread = b""

    def __enter__(self: Started) -> Started:
        self._errors = self._open_errors()
        self.process = subprocess.Popen(
            self._command,
            env=self._env,
            cwd=self._cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            pipesize=self._pipe_bytes,
            start_new_session=True,
        )
        try:
            self.begin()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with suppress(ProcessLookupError):  # the group may be there when its first process is not
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()
        self._said = self.errors
        self._errors.close()
        if error is not None:
            print(f"--- stderr of {self._command}\n{self._said}", file=sys.stderr)

    def begin(self) -> None:
        """Called when it was started, before the block begins."""

    @property
    def errors(self) -> str:
        """What it wrote to stderr until now."""
        if self._errors.closed:
            return self._said
        size = os.fstat(self._errors.fileno()).st_size
        return os.pread(self._errors.fileno(), size, 0).decode(errors="replace")

    def line(self) -> str | None:
        """Wait for its next line; None when its stdout ended before."""
        until = time.monotonic() + DEADLINE_SECONDS
        while b"\n" not in self._unread:
            if not self._read_more(until):
                return None
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()

    def answer(self) -> Any:
        """Wait for its next line that is a JSON object; NIXL and UCX print there too."""
        while (line := self.line()) is not None:
            if line.startswith("{"):
                return json.loads(line)
        raise AssertionError(f"{self._command} ended before it answered:\n{self.errors}")

    def tell(self, line: str) -> None:
        """Write a line to its stdin."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

    def send(self, number: int) -> None:
        """Send a signal to it alone."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """kill -9, and wait until it is gone. Idempotent."""
        self.process.kill()
        self.process.wait()

    def wait(self) -> int:
        """Wait for its end; return the exit code."""
        try:
            return self.process.wait(DEADLINE_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self._command} does not end:\n{self.errors}") from None

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; return the exit code."""
        self.send(number)
        return self.wait()

    def finish(self, within_seconds: float = DEADLINE_SECONDS) -> tuple[int, str]:
        """End its stdin and wait for its end; return the exit code and what was left on stdout."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        until = time.monotonic() + within_seconds
        while self._read_more(until):
            pass
        left, self._unread = self._unread, b""
        return self.wait(), left.decode(errors="replace")

    def _open_errors(self) -> IO[bytes]:
        if self._logs is None:
            return tempfile.TemporaryFile()
        return (self._logs / f"{os.urandom(4).hex()}.err").open("w+b")

    def _read_more(self, until: float) -> bool:
        """Return whether there was more on stdout before it ended."""
        assert self.process.stdout is not None
        readable = select.poll()
        readable.register(self.process.stdout, select.POLLIN)
        if not readable.poll(max(0.0, until - time.monotonic()) * 1000):
            raise AssertionError(f"{self._command} says nothing more:\n{self.errors}")
        more = os.read(self.process.stdout.fileno(), _READ_BYTES)
        self._unread += more
        return bool(more)


def ended(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path = REPOSITORY,
) -> subprocess.CompletedProcess[str]:
    """Run a process to its end, with nothing on its stdin; `env` as in `Child`."""
    with Child(command, env=env, cwd=cwd) as child:
        code, out = child.finish()
        return subprocess.CompletedProcess(command, code, out, child.errors)
