"""What programs of this directory share: jobs chosen by the command line, and the line about them.

A job returns "" when it hit, else what it compiled.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping

Job = Callable[[], str]


def run_jobs(normal: Mapping[str, Job], *, some: Collection[str], more: Mapping[str, Job]) -> None:
    """Run the jobs that the arguments ask for; print one JSON object about them."""
    chosen = dict(normal)
    if "--some" in sys.argv[1:]:
        chosen = {name: normal[name] for name in some}
    elif "--more" in sys.argv[1:]:
        chosen = dict(more)
    compiled: dict[str, str] = {}
    errors: list[str] = []
    began = time.monotonic()
    for name, job in chosen.items():
        try:
            what = job()
        except Exception as error:
            errors.append(f"{name}: {error!r}"[-1000:])
        else:
            if what:
                compiled[name] = what
    seconds = time.monotonic() - began
    answer = {
        "jobs": len(chosen),
        "hits": len(chosen) - len(compiled) - len(errors),
        "recompiled": len(compiled),
        "errors": errors,
        "seconds": round(seconds, 2),
        "compiled": compiled,
    }
    print(json.dumps(answer))


class NinjaListener:
    """Hears what ninja says when an engine runs it in this process."""

    def __init__(self) -> None:
        self._real_run = subprocess.run
        self._said = ""
        subprocess.run = self._run  # type: ignore[assignment]

    def built(self) -> str:
        """Return why ninja built something when it last ran, "" if it had nothing to do."""
        said, self._said = self._said, ""
        if "no work to do" in said:
            return ""
        lines = said.splitlines()
        reasons = [line for line in lines if line.startswith("ninja explain")]
        return (reasons or lines or ["ninja was not run"])[0][:300]

    def _run(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        command = kwargs.pop("args", None) or args[0]
        if command[0] != "ninja":
            return self._real_run(command, *args[1:], **kwargs)
        explained = [command[0], "-d", "explain", *command[1:]]
        # Together, and kept, where its engine would have it shown.
        for stream in ("stdout", "stderr"):
            if kwargs.get(stream) is None and not kwargs.get("capture_output"):
                kwargs[stream] = subprocess.PIPE
        done = self._real_run(explained, *args[1:], **kwargs)
        self._said = "".join(
            stream if isinstance(stream, str) else stream.decode()
            for stream in (done.stdout, done.stderr)
            if stream
        )
        return done
