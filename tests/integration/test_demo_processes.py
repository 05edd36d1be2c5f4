"""The demo's children: their ends, their errors, and that nothing outlives them."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mx_artifact_cli.demo.interrupts import one_interrupt, signals_held
from mx_artifact_cli.demo.processes import Processes
from mx_artifacts.errors import MxArtifactsError
from mx_artifacts.runtime.clock import SYSTEM_CLOCK

BOUND_SECONDS = 30.0

GRANDCHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
"""


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def processes(tmp_path: Path, told: list[str]) -> Iterator[Processes]:
    made = Processes(tmp_path, told.append, SYSTEM_CLOCK)
    yield made
    made.close()


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def environment() -> dict[str, str]:
    return dict(os.environ)


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_for_line(path: Path) -> str:
    deadline = time.monotonic() + BOUND_SECONDS
    while not path.read_text().endswith("\n"):
        assert time.monotonic() < deadline, f"nothing in {path}"
        time.sleep(0.02)
    return path.read_text()


def test_run_keeps_what_the_child_printed(processes: Processes) -> None:
    child = processes.run("job", python("print('out')"), environment(), BOUND_SECONDS)
    assert child.stdout.read_text() == "out\n"
    assert not exists(child.popen.pid)


def test_the_error_for_a_failed_child_has_its_command_and_last_line(
    processes: Processes, told: list[str]
) -> None:
    code = "import sys; print('\\n'.join(map(str, range(40))), file=sys.stderr); sys.exit(7)"
    with pytest.raises(MxArtifactsError) as caught:
        processes.run("cold-job", python(code), environment(), BOUND_SECONDS)
    message = str(caught.value)
    assert message.startswith(f"cold-job: `{sys.executable} -c ")
    assert message.endswith("ended with exit code 7: 37 / 38 / 39")
    assert told == [f"cold-job | {number}" for number in range(25, 40)]


def test_the_error_object_of_a_verb_is_shown_by_its_message(processes: Processes) -> None:
    code = (
        """import sys; print('{"type": "X", "message": "no source"}', file=sys.stderr); exit(10)"""
    )
    with pytest.raises(MxArtifactsError, match=r"ended with exit code 10: no source$"):
        processes.run("fetch", python(code), environment(), BOUND_SECONDS)


def test_the_error_for_a_killed_child_names_its_signal(processes: Processes) -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    with pytest.raises(MxArtifactsError, match="signal 9"):
        processes.run("job", python(code), environment(), BOUND_SECONDS)


def test_a_child_that_takes_too_long_is_an_error(processes: Processes) -> None:
    with pytest.raises(MxArtifactsError, match="took longer than"):
        processes.run("job", python("import time; time.sleep(600)"), environment(), 0.2)


def test_processes_that_a_child_started_end_with_it(processes: Processes) -> None:
    child = processes.run("job", python(GRANDCHILD), environment(), BOUND_SECONDS)
    assert not exists(int(child.stdout.read_text()))


def test_close_kills_a_running_child_and_its_children(processes: Processes) -> None:
    code = GRANDCHILD + "time.sleep(600)"
    child = processes.start("job", python(code), environment())
    grandchild = int(wait_for_line(child.stdout))
    processes.close()
    assert not exists(child.popen.pid)
    assert not exists(grandchild)


def test_children_die_with_a_parent_that_is_killed(processes: Processes, tmp_path: Path) -> None:
    code = f"""
import os, signal, sys
from pathlib import Path
from mx_artifact_cli.demo.processes import Processes
from mx_artifacts.runtime.clock import SYSTEM_CLOCK
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
child = Processes(Path({str(tmp_path)!r}), print, SYSTEM_CLOCK).start("sleep", sleep, os.environ)
print(child.popen.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    paths = {**environment(), "PYTHONPATH": os.pathsep.join(sys.path)}
    with pytest.raises(MxArtifactsError, match="signal 9"):
        processes.run("parent", python(code), paths, BOUND_SECONDS)
    # An orphan of a session of its own: it comes to us, who wait for what processes leave behind.
    _, status = os.waitpid(int((tmp_path / "parent.out").read_text()), 0)
    assert os.WTERMSIG(status) == signal.SIGKILL


def test_ready_returns_the_result_record(processes: Processes) -> None:
    code = """
import time
print('NIXL INFO says something')
print('{"event": "published"}')
print('{"event": "result", "address": "127.0.0.1:1"}', flush=True)
time.sleep(600)
"""
    child = processes.start("serve", python(code), environment())
    assert processes.ready(child, BOUND_SECONDS)["address"] == "127.0.0.1:1"


def test_ready_says_when_the_server_ended_instead(processes: Processes) -> None:
    code = "import sys; print('port in use', file=sys.stderr); sys.exit(2)"
    child = processes.start("serve", python(code), environment())
    with pytest.raises(
        MxArtifactsError, match=r"ended with exit code 2 before it served: port in use$"
    ):
        processes.ready(child, BOUND_SECONDS)


def test_stop_expects_an_orderly_end(processes: Processes) -> None:
    orderly = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
print(flush=True)
time.sleep(600)
"""
    for name, code in (("orderly", orderly), ("abrupt", "import time; print(); time.sleep(600)")):
        child = processes.start(name, ["env", "PYTHONUNBUFFERED=1", *python(code)], environment())
        wait_for_line(child.stdout)
        if name == "orderly":
            processes.stop(child)
        else:
            with pytest.raises(MxArtifactsError, match="ended with signal 15"):
                processes.stop(child)


def test_only_the_first_signal_interrupts() -> None:
    cleaned = []

    def interrupted_twice() -> None:
        with one_interrupt():
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                signal.raise_signal(signal.SIGINT)
                cleaned.append("all")

    with pytest.raises(KeyboardInterrupt):  # the second, once the clean-up is done
        interrupted_twice()
    assert cleaned == ["all"]
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()


def test_a_signal_waits_while_signals_are_held() -> None:
    made = []

    def interrupted_while_it_makes() -> None:
        with one_interrupt():
            with signals_held():
                signal.raise_signal(signal.SIGTERM)
                made.append("all")
            made.append("more")

    with pytest.raises(KeyboardInterrupt):
        interrupted_while_it_makes()
    assert made == ["all"]
