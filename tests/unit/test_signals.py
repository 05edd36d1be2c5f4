"""Waiting for a signal, whichever thread the kernel hands it to."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import signal, threading, time
from mx_artifact_cli.signals import on_stop_request, woken_by_signals

def take_it():
    time.sleep(0.3)  # until the main thread waits
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    time.sleep(60)

requests = []
threading.Thread(target=take_it, daemon=True).start()
with woken_by_signals() as wait, on_stop_request(lambda: requests.append(None)):
    while not requests:
        wait()
assert signal.set_wakeup_fd(-1) == -1
print("stopped")
"""


def test_a_signal_that_another_thread_takes_ends_the_wait() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=40, check=False
    )
    assert (done.returncode, done.stdout) == (0, "stopped\n"), done.stderr
