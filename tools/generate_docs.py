"""Generate the pages of docs/operations/ that can drift: settings, CLI help, exit codes, events.

usage: python tools/generate_docs.py [--check]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import generated

from mx_artifact_cli import outcomes as outcomes  # which are errors too
from mx_artifact_cli.main import HELP_WIDTH, cli
from mx_artifact_cli.options import SettingOption
from mx_artifacts.errors import ExitCode, MxArtifactsError
from mx_artifacts.observability import catalogue
from mx_artifacts.observability.events import Event
from mx_artifacts.settings import SETTINGS
from mx_artifacts.transport.nixl import (
    UCX_DEFAULTS,
    UCX_DEFAULTS_OF_AGENTS,
    UCX_DEFAULTS_OF_PROGRAMS,
)

OPERATIONS = Path(__file__).resolve().parent.parent / "docs" / "operations"
REMAKE = "make docs"
NOTICE = f"<!-- Written by tools/generate_docs.py; change its sources and run `{REMAKE}`. -->\n"


def commands(
    command: click.Command, parent: click.Context | None = None
) -> Iterator[tuple[click.Command, click.Context]]:
    """Yield a command and all below it, in the order of the help."""
    outermost: dict[str, Any] = {"help_option_names": ["-h", "--help"], "show_default": True}
    context = command.context_class(
        command,
        parent,
        info_name="mx-artifact" if parent is None else command.name,
        terminal_width=HELP_WIDTH,
        max_content_width=HELP_WIDTH,
        **(outermost if parent is None else {}),
    )
    yield command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None:
                yield from commands(below, context)


def table(*rows: tuple[str, ...]) -> str:
    """Return a Markdown table; the first row is its head."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return "\n".join(lines) + "\n"


def settings_page() -> str:
    """Describe every environment variable that mx-artifacts reads, and the flags over it."""
    flags: dict[str, list[str]] = {}
    for command, context in commands(cli):
        for option in command.params:
            if isinstance(option, SettingOption):
                verb = context.command_path.partition(" ")[2]
                flags.setdefault(option.setting.name, []).append(f"`{verb} {option.opts[0]}`")
    rows = [
        (
            ", ".join(f"`{name}`" for name in setting.names),
            setting.default_text,
            setting.meaning,
            ", ".join(flags.get(setting.name, [])),
        )
        for setting in SETTINGS
    ]
    ucx_rows = [
        (f"`{each.name}`", each.value, setter, each.reason)
        for setter, defaults in (
            ("library and command line", UCX_DEFAULTS),
            ("library and command line, for their own agents only", UCX_DEFAULTS_OF_AGENTS),
            ("command line only", UCX_DEFAULTS_OF_PROGRAMS),
        )
        for each in defaults
    ]
    return f"""# Settings

A flag overrides the environment, and the environment overrides the default. If a row has several
variables, the first one that is set counts; an empty variable counts as not set. An invalid value
is refused, and the error says which values are valid. Durations are seconds, or a number with ms,
s, m or h. Sizes are bytes, or a number with K, M, G or T (powers of 1024).

{table(("variable", "default", "meaning", "flags"), *rows)}
## Variables of UCX

NIXL uses UCX, which reads variables of its own. For example, `UCX_NET_DEVICES` and `UCX_TLS` say
which devices and protocols it uses; the documentation of UCX lists all of them. We set these
variables if you have not set them:

{table(("variable", "value", "set by", "reason"), *ucx_rows)}"""


def cli_page() -> str:
    """Return the help of every command."""
    parts = [
        f"## {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"
        for command, context in commands(cli)
    ]
    return "# Command line\n\n" + "\n".join(parts)


def errors(kind: type[MxArtifactsError] = MxArtifactsError) -> Iterator[type[MxArtifactsError]]:
    """Yield the exception classes, each before those below it."""
    yield kind
    for below in kind.__subclasses__():
        yield from errors(below)


def exit_codes_page() -> str:
    """Describe the exit codes and which error ends with which."""
    codes = [(str(int(code)), code.name, code.meaning) for code in ExitCode]
    rows = [
        (
            f"`{kind.__name__}`",
            str(int(kind.exit_code)),
            "yes" if kind.retryable else "",
            (kind.__doc__ or "").partition("\n")[0],
            kind.default_hint,
        )
        for kind in errors()
    ]
    return f"""# Exit codes

{table(("code", "name", "meaning"), *codes)}
With `--format json` or `jsonl`, an error is one JSON object on one line of stderr. It has `type`,
`message`, `hint`, `retryable` and `exit_code`. UCX and NIXL may also write lines to stderr; these
are not JSON objects. `type` is one of the classes below, `UsageError` (a command line that cannot
be parsed, code 2) or `Interrupted` (code 130). `retryable` means that the same call may succeed
later without any change. `TransferFailedError` has the exit code of the last cause in its
`attempts`, and is retryable if one of these causes is. `KindsFailedError` is retryable if all
causes in its `failures` are. If all kinds failed, it has the exit code of the first cause.

{table(("error", "code", "retryable", "meaning", "next"), *rows)}"""


def events_page() -> str:
    """Describe every event of the catalogue."""
    events = [
        each
        for each in vars(catalogue).values()
        if isinstance(each, type) and issubclass(each, Event) and each is not Event
    ]
    rows = [
        (
            f"`{event.name}`",
            f"`{event.__name__}`",
            ", ".join(f"`{field.name}`" for field in dataclasses.fields(event)),
            " ".join((event.__doc__ or "").split()),
        )
        for event in events
    ]
    return f"""# Events

The library and the central server pass each event to an `EventSink`. `mx-artifact ... --format
jsonl` prints each event as one JSON object; its `event` is the name in the first column. A sink
tells events apart by class (`mx_artifacts.events`). Fields whose names end in `_bytes` are in
bytes, those that end in `_seconds` in seconds. An `error` is an exception, printed as in
[exit codes](exit-codes.md).

{table(("event", "class", "fields", "when"), *rows)}"""


def generate(out: Path) -> None:
    """Write all pages below `out`."""
    out.mkdir(parents=True, exist_ok=True)
    for name, page in (
        ("settings.md", settings_page()),
        ("cli.md", cli_page()),
        ("exit-codes.md", exit_codes_page()),
        ("events.md", events_page()),
    ):
        (out / name).write_text(NOTICE + page, encoding="utf-8")


if __name__ == "__main__":
    # Other pages of docs/operations/ are written by hand, so nothing there is owned.
    raise SystemExit(generated.main(generate, OPERATIONS, owned="", remake=REMAKE, usage=__doc__))
