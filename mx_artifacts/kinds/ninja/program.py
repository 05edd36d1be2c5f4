"""Asks this node's ninja (the one on PATH, as engines use it) about itself.

ninja is run on files that we wrote ourselves, in a directory of our own, and never on files that
were fetched or found in a cache: even `ninja -n` writes and removes files that a build file names.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

from mx_artifacts.node.environment import environment

_TIMEOUT_SECONDS = 60.0


def find_ninja() -> str | None:
    """Return the path of this node's ninja, None where there is none."""
    return shutil.which("ninja", path=environment().get("PATH", ""))


@functools.lru_cache(maxsize=16)
def keeps_log(ninja: str, version: int) -> bool:
    """Return whether this ninja leaves a build log of this version where it is, by trying one.

    A ninja that does not end in a minute, or cannot be run, keeps none.
    """
    with tempfile.TemporaryDirectory(prefix="mx-artifacts-ninja-") as name:
        directory = Path(name)
        log = directory / ".ninja_log"
        log.write_bytes(b"# ninja log v%d\n" % version)
        (directory / "build.ninja").write_text("build all: phony\n")
        try:
            done = subprocess.run(
                (ninja, "-C", name, "-n"),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TIMEOUT_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0 and log.exists()
