"""The command line of `mx-artifact`: dispatch, errors to stderr, exit codes.

It imports large modules only when a verb needs them, so that `--help` answers in under 0.3 s.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from importlib import import_module

import click

from mx_artifact_cli.options import VerbGroup, requested_debug, requested_format
from mx_artifact_cli.output import Output, interrupted
from mx_artifact_cli.signals import interrupts
from mx_artifacts import __version__
from mx_artifacts.errors import ExitCode, MxArtifactsError

VERBS = {
    "serve": "Run the central server, which knows which source serves which cache.",
    "publish": "Publish caches of this node and serve them.",
    "fetch-and-install": "Fetch caches from a warm node and install them here.",
    "why": "Say which source this node would use, or why it can use none.",
    "sources": "Show the sources that the central server knows.",
    "inspect": "Show the members of a BUNDLE file, or the manifest that a source serves.",
    "verify": "Check an installed cache against its receipt, byte for byte.",
    "used": "Say whether an engine used an installed cache or compiled again.",
    "uninstall": "Remove exactly what was installed.",
    "quarantine": "Remove an artifact from this node and do not fetch it again.",
    "doctor": "Check this node before it publishes or fetches.",
    "demo": "Compile on one node, run without compiling on another.",
}
"""The verbs with the first line of their help. A verb is `command` in the module of that name in
commands/. The lines are repeated here, so that listing the verbs imports none of them. A test
compares them."""


class LazyGroup(VerbGroup):
    """Imports the module of a verb when the verb is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        module = import_module(f"mx_artifact_cli.commands.{name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


HELP_WIDTH = 100
"""Maximum width of help [columns]; a narrower terminal limits it further."""


@click.group(
    cls=LazyGroup,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "show_default": True,
        "max_content_width": HELP_WIDTH,
    },
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def cli() -> None:
    """Move JIT and compile caches between inference nodes.

    A warm node publishes what its engine has compiled. A cold node fetches and installs it, so that
    its engine does not compile it again.
    """


class _LogToOutput(logging.Handler):
    def __init__(self, output: Output) -> None:
        super().__init__()
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            self._output.warn(record.getMessage())
        else:
            self._output.note(f"{record.name}: {record.getMessage()}")


@contextlib.contextmanager
def _logs_to(output: Output, *, debug: bool) -> Iterator[None]:
    logger = logging.getLogger("mx_artifacts")
    handler = _LogToOutput(output)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if debug else logging.WARNING)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def _run(args: list[str], output: Output) -> int:
    try:
        with cli.make_context("mx-artifact", args, obj=output) as context:
            cli.invoke(context)
    except click.exceptions.Exit as end:  # --help and --version
        return end.exit_code
    return ExitCode.OK


def _usage_failure(error: click.ClickException) -> dict[str, object]:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "mx-artifact"
    return {
        "type": "UsageError",
        "message": error.format_message(),
        "hint": f"see '{path} --help'",
        "retryable": False,
        "exit_code": int(ExitCode.USAGE),
    }


def _unexpected_failure(error: Exception) -> dict[str, object]:
    return {
        "type": type(error).__name__,
        "message": f"unexpected {type(error).__name__}: {error}",
        "hint": "run it again with --debug and report the output",
        "retryable": False,
        "exit_code": int(ExitCode.UNEXPECTED),
    }


def _close_stdout() -> None:
    """Flush stdout. If its reader is gone, prevent an error message of the interpreter at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(argv: Sequence[str] | None = None, *, held: Sequence[int] = ()) -> int:
    """Run a command line (default: that of this process) and return the exit code.

    `held` are the signals that arrived earlier, recorded by `hold_signals`.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    output = Output(requested_format(args))
    debug = requested_debug(args)
    try:
        with interrupts(), _logs_to(output, debug=debug):
            if held:
                raise KeyboardInterrupt
            return _run(args, output)
    except KeyboardInterrupt:
        output.failure(interrupted())
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        return ExitCode.READER_LEFT  # quietly, as `mx-artifact ... | head` expects
    except click.ClickException as error:
        output.failure(_usage_failure(error))
        return ExitCode.USAGE
    except MxArtifactsError as error:
        if debug:
            traceback.print_exc()
        output.error(error)
        return error.exit_code
    except Exception as error:
        if debug:
            traceback.print_exc()
        from mx_artifacts.runtime.node_limits import node_limit_of

        limit = node_limit_of(error)
        if limit is not None:
            output.error(limit)
            return limit.exit_code
        output.failure(_unexpected_failure(error))
        return ExitCode.UNEXPECTED
    finally:
        _close_stdout()
