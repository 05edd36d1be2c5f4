"""Signals at the moments that are hard: before `main` runs, in a native start, at the very end."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.support.child import Child, ended
from tests.support.nodes import Cluster, clean_environment
from tests.support.processes import COMMAND, last_object, serving

ALL = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
WHILE_IMPORTING = """
import os, signal, sys

class Interrupter:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            os.kill(os.getpid(), {number:d})

sys.meta_path.insert(0, Interrupter())
sys.argv[1:] = ["sources", "list", "--format", "json"]
from mx_artifact_cli.__main__ import run
run()
"""
WHEN_DONE = """
import os, signal, sys
from mx_artifact_cli import __main__, main

def end(run=main.main, **held):
    code = run(**held)
    os.kill(os.getpid(), {number:d})
    return code

main.main = end
sys.argv[1:] = ["--version"]
__main__.run()
"""
# As an agent of NIXL that is still being started: its thread would abort a process that ends.
ABORTING = """
import atexit, os, threading

atexit.register(os.abort)
"""


@ALL
def test_a_signal_while_modules_are_imported(number: signal.Signals) -> None:
    program = WHILE_IMPORTING.format(number=number)
    done = ended([sys.executable, "-c", program])
    assert (done.returncode, done.stdout) == (130, "")
    assert last_object(done.stderr)["type"] == "Interrupted"
    assert "Traceback" not in done.stderr


@ALL
def test_a_signal_after_the_result_changes_nothing(number: signal.Signals) -> None:
    program = WHEN_DONE.format(number=number)
    done = ended([sys.executable, "-c", program])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("mx-artifact ")


def test_nothing_native_runs_after_the_command(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(ABORTING)
    path = os.pathsep.join(filter(None, (str(tmp_path), cluster.env.get("PYTHONPATH"))))
    with cluster.target(tmp_path / "cold", "--wait", "600s", PYTHONPATH=path) as target:
        assert target.expect("discover.waiting")
        target.send(signal.SIGINT)
        assert target.end()[0] == 130


def test_the_end_of_the_terminal_stops_in_order(cluster: Cluster, cache: Path) -> None:
    with cluster.source(cache) as source:
        assert source.stop(signal.SIGHUP) == 0
        assert source.errors == ""
    assert cluster.sealed() == []
    assert [found["status"] for found in cluster.sources()] == ["stale"]
    env = clean_environment(cluster.directory)
    with serving("serve", "--port", "0", env=env, logs=cluster.directory) as server:
        assert server.stop(signal.SIGHUP) == 0


def test_the_end_of_the_terminal_interrupts_a_fetch(cluster: Cluster, tmp_path: Path) -> None:
    with cluster.target(tmp_path / "cold", "--wait", "600s") as target:
        assert target.expect("discover.waiting")
        target.send(signal.SIGHUP)
        code, error = target.end()
    assert (code, error["type"]) == (130, "Interrupted")


def test_under_nohup_the_end_of_the_terminal_stops_nothing(tmp_path: Path) -> None:
    args = ("serve", "--port", "0", "--format", "jsonl")
    with Child(["nohup", *COMMAND, *args], env=clean_environment(tmp_path)) as server:
        assert server.line()
        server.send(signal.SIGHUP)
        assert server.stop() == 0
