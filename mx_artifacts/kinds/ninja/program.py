"""Asks the ninja of this node, the one on PATH as engines take it. Nothing is ever built here."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from mx_artifacts.node.environment import environment

_TIMEOUT_SECONDS = 60.0
_UP_TO_DATE = "no work to do"
_EXPLAINS = "ninja explain: "
_MAX_REASON_LENGTH = 300


class NinjaFailed(Exception):
    """ninja refused a build file, or did not end; says what it said."""


def find_ninja() -> str | None:
    """Return the path of this node's ninja, None where there is none."""
    return shutil.which("ninja", path=environment().get("PATH", ""))


def commands_of(ninja: str, directory: Path) -> dict[bytes, bytes]:
    """Return the command line of each output of `directory`/build.ninja.

    Raises:
        NinjaFailed: the build file is not valid.
    """
    done = _run(ninja, directory, "-t", "compdb")
    if done.returncode != 0:
        raise NinjaFailed(_complaint(done))
    return {
        os.fsencode(rule["output"]): os.fsencode(rule["command"])
        for rule in json.loads(done.stdout)
    }


def pending_work(ninja: str, directory: Path) -> str:
    """Say why ninja would build something in `directory`, or "" when nothing is to be done.

    Ask `keeps_log` before: even with -n, ninja removes a log of a version that it dropped.
    """
    try:
        done = _run(ninja, directory, "-n", "-d", "explain")
    except NinjaFailed as error:
        return str(error)
    if done.returncode == 0 and _UP_TO_DATE in done.stdout:
        return ""
    output = (done.stdout + done.stderr).splitlines()
    explained = (line.partition(_EXPLAINS)[2] for line in output if _EXPLAINS in line)
    return next(explained, _complaint(done))[:_MAX_REASON_LENGTH]


@functools.lru_cache(maxsize=16)
def keeps_log(ninja: str, version: int) -> bool:
    """Tell whether this ninja leaves a build log of this version where it is, by trying one."""
    with tempfile.TemporaryDirectory(prefix="mx-artifacts-ninja-") as name:
        directory = Path(name)
        log = directory / ".ninja_log"
        log.write_bytes(b"# ninja log v%d\n" % version)
        (directory / "build.ninja").write_text("build all: phony\n")
        return _run(ninja, directory, "-n").returncode == 0 and log.exists()


def _run(ninja: str, directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            (ninja, "-C", str(directory), *arguments),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NinjaFailed(f"{ninja}: {error}") from error


def _complaint(done: subprocess.CompletedProcess[str]) -> str:
    """Return ninja's error, without the lines that show where in the build file it is."""
    lines = (done.stdout + done.stderr).strip().splitlines()
    errors = [line for line in lines if "error: " in line] or lines[-1:]
    return errors[0] if errors else f"ninja ended with code {done.returncode}"
