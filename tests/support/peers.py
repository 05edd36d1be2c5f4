"""Runs the scripts of tests/interop in the reference package's own environment."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.child import REPOSITORY, Child

ENVIRONMENT = REPOSITORY / ".venvs" / "interop"
SET_UP_LOG = REPOSITORY / ".venvs" / "interop.log"
SCRIPTS = REPOSITORY / "tests" / "interop"


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
        with Child(self.command(script, given), env=self._environment) as peer:
            code, out = peer.finish()
            assert code == 0, peer.errors
        answer: dict[str, Any] = json.loads(out.splitlines()[-1])
        return answer

    @contextmanager
    def serving(self, script: str, given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Run a script that serves; its answer says that it does. It must end well on SIGTERM."""
        with Child(self.command(script, given), env=self._environment) as peer:
            yield peer.answer()
            assert peer.stop() == 0, peer.errors
