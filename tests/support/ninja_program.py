"""Asks the real ninja, in tests alone, about modules that a test built itself."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import ninja

NINJA = os.path.join(ninja.BIN_DIR, "ninja")
_UP_TO_DATE = "no work to do"
_EXPLAINS = "ninja explain: "


def ninja_work(directory: Path) -> str:
    """Say why ninja would build something in `directory`, or "" when nothing is to be done."""
    done = _run(directory, "-n", "-d", "explain")
    if done.returncode == 0 and _UP_TO_DATE in done.stdout:
        return ""
    lines = (done.stdout + done.stderr).splitlines()
    explained = (line.partition(_EXPLAINS)[2] for line in lines if _EXPLAINS in line)
    return next(explained, "\n".join(lines))


def ninja_commands(directory: Path) -> dict[bytes, bytes]:
    """Return the command of each output of `directory`/build.ninja, as ninja expands it."""
    done = _run(directory, "-t", "compdb")
    if done.returncode:
        raise ValueError(done.stdout + done.stderr)
    rules = json.loads(done.stdout)
    return {os.fsencode(rule["output"]): os.fsencode(rule["command"]) for rule in rules}


def _run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (NINJA, "-C", str(directory), *arguments),
        capture_output=True,
        text=True,
        errors="surrogateescape",
        timeout=60,
        check=False,
    )
