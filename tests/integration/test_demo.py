"""The demo with real compilers: its result, and that it leaves nothing behind however it ends."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.child import Child, our_environment
from tests.support.processes import COMMAND

pytestmark = [
    pytest.mark.timeout(900),  # compilers on a loaded machine
    pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed"),
]
DEADLINE_SECONDS = 600.0


class Demo:
    """A running demo; `temporary` is the only place where it may write."""

    def __init__(self, child: Child, temporary: Path) -> None:
        self.child = child
        self._temporary = temporary

    @property
    def said(self) -> str:
        return self.child.errors

    def wait_until_it_says(self, text: str) -> None:
        self._wait_until(lambda: text in self.said, text)

    def wait_until_it_runs(self, program: str) -> None:
        self._wait_until(lambda: any(program in each for each in self.processes()), program)

    def _wait_until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not condition():
            assert self.child.process.poll() is None, f"it ended before {what!r}: {self.said}"
            assert time.monotonic() < deadline, f"never: {what}"
            time.sleep(0.02)

    def processes(self) -> list[str]:
        """Return the command lines of all processes that were given our temporary directory."""
        found = []
        for directory in Path("/proc").glob("[0-9]*"):
            try:
                if os.fsencode(self._temporary) in (directory / "environ").read_bytes():
                    found.append((directory / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue  # ended meanwhile, or not ours
        return found

    def finish(self) -> tuple[int, str]:
        """Wait for the end, check that nothing is left, and return exit code and stdout."""
        code, out = self.child.finish(DEADLINE_SECONDS)
        assert self.processes() == []
        assert list(self._temporary.iterdir()) == []
        return code, out


@contextmanager
def demo(tmp_path: Path, *args: str, **variables: str) -> Iterator[Demo]:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    env = {**our_environment(), **variables, "TMPDIR": str(temporary)}
    with Child([*COMMAND, "demo", *args], env=env) as child:
        yield Demo(child, temporary)


def test_every_job_hits_after_the_move(tmp_path: Path) -> None:
    # Settings of the user's own must not decide where the demo looks.
    with demo(tmp_path, "--format", "json", MX_SERVER_ADDRESS="127.0.0.1:1") as running:
        code, out = running.finish()
        assert (code, running.said) == (0, "")
    kinds = {each["kind"]: each for each in json.loads(out)["kinds"]}
    assert set(kinds) == {"inductor", "triton"}
    for each in kinds.values():
        assert each["jobs"] == each["hits"] == each["cold_misses"] > 0
        assert (each["misses"], each["rebuilt"]) == (0, 0)
        assert min(each["cold_seconds"], each["warm_seconds"]) > 0


def test_an_interrupt_while_it_compiles_leaves_nothing(tmp_path: Path) -> None:
    with demo(tmp_path, "--kind", "inductor") as running:
        running.wait_until_it_runs("cc1plus")
        running.child.send(signal.SIGINT)
        code, out = running.finish()
    assert (code, out) == (130, "")


def test_a_termination_while_it_serves_leaves_nothing(tmp_path: Path) -> None:
    with demo(tmp_path, "--kind", "triton") as running:
        running.wait_until_it_says("4/6")
        assert len(running.processes()) >= 3  # the demo, the central server, the publisher
        running.child.send(signal.SIGTERM)
        code, out = running.finish()
    assert (code, out) == (130, "")


def test_a_step_that_fails_is_named(tmp_path: Path) -> None:
    with demo(tmp_path, "--kind", "inductor", "--format", "json", CXX="false") as running:
        code, out = running.finish()
        error = json.loads(running.said)
    assert (code, out) == (1, "")
    assert error["message"].startswith("cold-inductor: `")
    assert "inductor_job` ended with exit code 1: " in error["message"]
