"""Runs the scripts of tests/interop in the reference package's own environment."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
ENVIRONMENT = ROOT / ".venvs" / "interop"
SET_UP_LOG = ROOT / ".venvs" / "interop.log"
SCRIPTS = ROOT / "tests" / "interop"
DEADLINE_SECONDS = 120.0


def peer_python() -> Path:
    """Return that environment's Python; skip the test where it could not be made."""
    if not (ENVIRONMENT / ".ready").exists():
        said = SET_UP_LOG.read_text().strip() if SET_UP_LOG.exists() else ""
        pytest.skip(f"no environment of the reference package: {said[-600:] or 'make interop'}")
    return ENVIRONMENT / "bin" / "python"


class Peer:
    """How to run scripts: with which environment variables, below which directory."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        """Make the peer's directories below `directory`."""
        self._python = peer_python()
        self._directory = directory
        self._environment = {
            # Ours must not be importable there.
            **{k: v for k, v in environment.items() if not k.startswith("PYTHON")},
            "TMPDIR": str(directory / "tmp"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        (directory / "tmp").mkdir(parents=True)

    def command(self, script: str, given: Mapping[str, Any]) -> list[str]:
        """Return the command line of a script."""
        bundles = {"bundle_root": str(self._directory / "bundles")}
        return [str(self._python), str(SCRIPTS / script), json.dumps({**bundles, **given})]

    def run(self, script: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Run a script to its end and return its answer."""
        done = subprocess.run(
            self.command(script, given),
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer

    @contextmanager
    def serving(self, script: str, given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Run a script that serves; its answer says that it does. It must end well on SIGTERM."""
        errors = self._directory / "serving.err"
        with (
            errors.open("w") as stderr,
            subprocess.Popen(
                self.command(script, given),
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            ) as process,
        ):
            try:
                yield self._answer(process, errors)
                process.terminate()
                assert process.wait(DEADLINE_SECONDS) == 0, errors.read_text()
            finally:
                process.kill()

    @staticmethod
    def _answer(process: subprocess.Popen[str], errors: Path) -> dict[str, Any]:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):  # NIXL prints there too
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise AssertionError(f"the peer ended: {errors.read_text()}")
