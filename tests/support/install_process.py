"""An installer as a process of its own: `python -m tests.support.install_process '<json>'`.

Fields: root, bundle, replace; uid (become it first), kill_at (send SIGKILL to itself at the n-th
step), kill_on (at the first event of that name), wait (read a line from stdin first, so that
several start together). Prints one JSON object: entries, steps, the step of the first journal.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from mx_artifacts.observability.events import Event
from tests.support.child import Child, our_environment
from tests.support.install_cases import install

STEPS = {"open", "os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.chmod", "os.chown"}
"""Audit events of the interpreter that count as steps, beside the installer's own events."""


class StepCounter:
    """Counts steps, and kills this process at one of them."""

    def __init__(self, kill_at: int, kill_on: str) -> None:
        self.count = 0
        self.journaled_at = 0
        self.active = False
        self._kill_at = kill_at
        self._kill_on = kill_on

    def step(self) -> None:
        if self.active:
            self.count += 1
            if self.count == self._kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    def audit(self, name: str, _arguments: object) -> None:
        if name in STEPS:
            self.step()

    def sink(self, event: Event) -> None:
        if event.name == self._kill_on:
            os.kill(os.getpid(), signal.SIGKILL)
        self.step()
        if event.name == "install.journaled" and not self.journaled_at:
            self.journaled_at = self.count


def install_process(**fields: Any) -> Child:
    """Return an installer, which the block starts."""
    words = ("-m", "tests.support.install_process", json.dumps(fields, default=str))
    return Child(
        [sys.executable, *words], env=our_environment({"PATH": os.environ.get("PATH", "")})
    )


def run(**fields: Any) -> tuple[int, dict[str, Any], str]:
    """Run an installer to its end; return exit status, what it printed, and its stderr."""
    with install_process(**fields) as process:
        status, out = process.finish()
        return status, json.loads(out) if out else {}, process.errors


def main() -> None:
    fields = json.loads(sys.argv[1])
    if "uid" in fields:
        os.setgroups([])
        os.setgid(0)
        os.setuid(fields["uid"])
    if fields.get("wait"):
        sys.stdin.readline()
    counter = StepCounter(fields.get("kill_at", 0), fields.get("kill_on", ""))
    sys.addaudithook(counter.audit)
    counter.active = True
    report = install(
        Path(fields["root"]),
        Path(fields["bundle"]),
        replace=fields.get("replace", False),
        events=counter.sink,
    )
    counter.active = False
    root = report.roots[0]
    result = {"installed": root.installed, "kept": root.kept}
    print(json.dumps({**result, "steps": counter.count, "journaled_at": counter.journaled_at}))


if __name__ == "__main__":
    main()
