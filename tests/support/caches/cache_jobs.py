"""Jobs that tell what they compiled, for the programs whose compilers say it job by job.

A job returns "" when it hit, else what was compiled.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping

from contract import chosen_jobs, report

Job = Callable[[], str]


def run_jobs(normal: Mapping[str, Job], more: Mapping[str, Job]) -> None:
    """Run the jobs that the command line asks for, and report on them."""
    jobs = {**normal, **more}
    names = chosen_jobs(list(normal), list(more))
    compiled: dict[str, str] = {}
    errors: list[str] = []
    began = time.monotonic()
    for name in names:
        try:
            what = jobs[name]()
        except Exception as error:
            errors.append(f"{name}: {error!r}"[-1000:])
        else:
            if what:
                compiled[name] = what
    report(
        jobs=len(names),
        hits=len(names) - len(compiled) - len(errors),
        recompiled=len(compiled),
        errors=errors,
        seconds=time.monotonic() - began,
        compiled=compiled,
    )


class NinjaListener:
    """Hears what ninja says when an engine runs it in this process."""

    def __init__(self) -> None:
        self._real_run = subprocess.run
        self._said = ""
        subprocess.run = self._run

    def built(self) -> str:
        """Return why ninja built something when it last ran, "" if it had nothing to do."""
        said, self._said = self._said, ""
        if "no work to do" in said:
            return ""
        lines = said.splitlines()
        reasons = [line for line in lines if line.startswith("ninja explain")]
        return (reasons or lines or ["ninja was not run"])[0][:300]

    def _run(self, *args, **kwargs):
        command = kwargs.pop("args", None) or args[0]
        if command[0] != "ninja":
            return self._real_run(command, *args[1:], **kwargs)
        explained = [command[0], "-d", "explain", *command[1:]]
        # Where its engine would have ninja print for itself, we listen.
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
