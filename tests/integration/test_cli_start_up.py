"""The command line starts light: nothing heavy is imported before a verb needs it."""

from __future__ import annotations

import sys

import pytest

from mx_artifact_cli.main import VERBS, cli
from tests.support.child import ended

HEAVY = ("asyncio", "torch", "nixl", "grpc", "numpy", "google", "rich", "triton", "redis")

PROGRAM = """
import sys
from mx_artifact_cli.main import main
code = main(sys.argv[1:])
print(code, *[name for name in {heavy!r} if name in sys.modules], file=sys.stderr)
"""


@pytest.mark.parametrize(
    "args",
    [
        ["--help"],
        ["--version"],
        ["serve", "--help"],
        ["publish", "-h"],
        ["fetch-and-install", "--help"],
        ["sources", "--help"],
        ["sources", "list", "--help"],
        ["sources", "show", "--help"],
        ["inspect", "--help"],
        ["verify", "--help"],
        ["used", "--help"],
        ["uninstall", "--help"],
        ["quarantine", "--help"],
        ["doctor", "--help"],
        ["demo", "--help"],
    ],
    ids=" ".join,
)
def test_help_imports_nothing_heavy(args: list[str]) -> None:
    done = ended([sys.executable, "-c", PROGRAM.format(heavy=HEAVY), *args])
    assert (done.returncode, done.stderr.split()) == (0, ["0"])
    assert done.stdout


def test_the_list_of_verbs_says_what_their_help_says() -> None:
    context = cli.make_context("mx-artifact", ["serve"])
    for verb, line in VERBS.items():
        command = cli.get_command(context, verb)
        assert command is not None
        assert (command.help or "").partition("\n")[0] == line
