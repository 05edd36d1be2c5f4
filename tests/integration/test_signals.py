"""Waiting for a signal, whichever thread the kernel hands it to."""

from __future__ import annotations

import sys

from tests.support.child import ended

PROGRAM = """
import signal, threading, time
from mx_artifact_cli.signals import stop_request

def take_it():
    time.sleep(0.3)  # until the main thread waits
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    time.sleep(60)

threading.Thread(target=take_it, daemon=True).start()
with stop_request() as stop:
    while not stop.wait(60):
        pass
assert signal.set_wakeup_fd(-1) == -1
print("stopped")
"""

AT_WORK = """
import os, signal, time
from mx_artifact_cli.signals import stop_request

def work():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    finally:
        print("unwound")

with stop_request() as stop:
    assert not stop.wait(0.01)
    stop.run(work)
    assert stop.wait(60)
    stop.run(lambda: print("not called any more"))
"""


def run(program: str) -> str:
    done = ended([sys.executable, "-c", program])
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_signal_that_another_thread_takes_ends_the_wait() -> None:
    assert run(PROGRAM) == "stopped\n"


def test_a_request_to_stop_unwinds_the_work_under_way() -> None:
    assert run(AT_WORK) == "unwound\n"
