"""Runs `mx-artifact` inside the test's process, with a verb of the test's own if it likes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import click
import pytest

from mx_artifact_cli import main as entry
from mx_artifact_cli.options import Verb
from mx_artifact_cli.output import Output


@dataclass(frozen=True)
class Run:
    """How a command line ended."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """The one JSON value on stdout."""
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """The one JSON object on stderr."""
        return json.loads(self.err)


RunCli = Callable[..., Run]


def runner(capsys: pytest.CaptureFixture[str]) -> RunCli:
    """Return a function that runs a command line and captures what it says."""

    def run(*args: str) -> Run:
        capsys.readouterr()
        code = entry.main(args)
        captured = capsys.readouterr()
        return Run(code, captured.out, captured.err)

    return run


def add_verb(monkeypatch: pytest.MonkeyPatch, name: str, body: Callable[[Output], object]) -> None:
    """Make `mx-artifact <name>` call `body`."""

    @click.command(name, cls=Verb)
    @click.pass_obj
    def command(output: Output) -> None:
        body(output)

    monkeypatch.setattr(entry, "VERBS", {**entry.VERBS, name: "The test's own."})
    module = SimpleNamespace(command=command)
    monkeypatch.setitem(sys.modules, f"mx_artifact_cli.commands.{name}", module)
