"""Writes what the user sees: data on stdout, all else on stderr, in the requested format.

    human  tables and lines
    json   one object on stdout when the result is known; errors and warnings as objects on stderr
    jsonl  one object per line: one for each event and record, then one whose `event` is "result"
    quiet  errors only

Commands call all methods. A method writes nothing if the format has no place for it.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from mx_artifact_cli.outcomes import KindsFailedError
from mx_artifact_cli.text import printable
from mx_artifacts.errors import (
    ExitCode,
    IncompatibleSourceError,
    MxArtifactsError,
    TransferFailedError,
)
from mx_artifacts.observability.events import Event

if TYPE_CHECKING:
    from rich.console import Console


class Format(str, Enum):
    """The values of --format."""

    HUMAN = "human"
    JSON = "json"
    JSONL = "jsonl"
    QUIET = "quiet"


def error_object(error: MxArtifactsError) -> dict[str, Any]:
    """Describe `error` as the JSON formats show it."""
    described: dict[str, Any] = {
        "type": type(error).__name__,
        "message": str(error),
        "hint": error.hint(),
        "retryable": error.retryable,
        "exit_code": int(error.exit_code),
    }
    if isinstance(error, IncompatibleSourceError) and error.reasons:
        described["reasons"] = error.reasons
    if isinstance(error, TransferFailedError) and error.attempts:
        described["attempts"] = [
            {"source": source, "error": error_object(cause)} for source, cause in error.attempts
        ]
    if isinstance(error, KindsFailedError):
        described["failures"] = {
            name: error_object(cause) for name, cause in error.failures.items()
        }
    return described


def _plain(value: object) -> object:
    """Turn a value that JSON does not support, such as one in an event, into one that it does."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, MxArtifactsError):
        return error_object(value)
    return str(value)


class Output:
    """Writes in one format. Thread-safe, because events come from any thread.

    Writing to stdout raises BrokenPipeError if its reader is gone (then `main` ends without a
    message). Writing to stderr never raises.
    """

    def __init__(self, format: Format = Format.HUMAN) -> None:
        self.format = format
        self._lock = threading.Lock()
        self._stderr_console: Console | None = None

    # --- data, on stdout --------------------------------------------------------------------

    def line(self, text: str = "") -> None:
        """Write a line of data for humans."""
        if self.format is Format.HUMAN:
            self._write(printable(text))

    def facts(self, facts: Mapping[str, object], *, indent: str = "") -> None:
        """Write names and values for humans, aligned, one pair per line."""
        width = max(map(len, facts), default=0)
        for name, value in facts.items():
            self.line(f"{indent}{name:<{width}}  {value}")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Write a table for humans. It is cut to the width of a terminal, and not cut in a pipe."""
        if self.format is not Format.HUMAN:
            return
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        table = Table(*columns, box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for row in rows:
            table.add_row(*(printable(str(cell)) for cell in row))
        console = _console(sys.stdout)
        with self._lock:
            console.print(table)

    def record(self, event: str, data: Mapping[str, object]) -> None:
        """Write one record for programs that read each record at once (jsonl)."""
        if self.format is Format.JSONL:
            self._write(json.dumps({"event": event, **data}, default=_plain))

    def result(self, data: Mapping[str, object]) -> None:
        """Write the result for programs: the only object of json, the last one of jsonl."""
        if self.format is Format.JSON:
            self._write(json.dumps(data, default=_plain, indent=2))
        self.record("result", data)

    def forward(self, event: Event) -> None:
        """Write an event of the library as a record. This is an EventSink, so it never raises."""
        with contextlib.suppress(OSError):
            self.record(event.name, event.fields())

    # --- all else, on stderr ----------------------------------------------------------------

    def note(self, text: str) -> None:
        """Write for a human what the command is doing."""
        if self.format is Format.HUMAN:
            self._say(text)

    def warn(self, text: str) -> None:
        """Write a warning: something may differ from what the user expects."""
        if self.format is Format.HUMAN:
            self._say(f"warning: {text}")
        elif self.format is not Format.QUIET:
            self._say(json.dumps({"type": "warning", "message": text}))

    def notice(self, text: str, data: Mapping[str, object]) -> None:
        """Write, in every format, something that the user requested; `data` is for programs."""
        if self.format in (Format.JSON, Format.JSONL):
            self._say(json.dumps({"type": "notice", "message": text, **data}, default=_plain))
        else:
            self._say(text)

    def error(self, error: MxArtifactsError) -> None:
        """Write why a command, or a part of it, failed, and what to do next."""
        self.failure(error_object(error))

    def failure(self, described: Mapping[str, Any]) -> None:
        """Write an error that is described as `error_object` describes errors."""
        if self.format in (Format.JSON, Format.JSONL):
            self._say(json.dumps(described, default=_plain))
            return
        self._say(f"error: {described['message']}")
        for source, reason in described.get("reasons", {}).items():
            if reason not in described["message"]:
                self._say(f"  {source}: {reason}")
        for attempt in described.get("attempts", ()):
            if attempt["error"]["message"] not in described["message"]:
                self._say(f"  {attempt['source']}: {attempt['error']['message']}")
        for kind, cause in described.get("failures", {}).items():
            self._say(f"  {kind}: {cause['message']}")
        if described["hint"]:
            self._say(f"next: {described['hint']}")

    def stderr_console(self) -> Console:
        """Return the rich console that progress bars and messages share."""
        if self._stderr_console is None:
            self._stderr_console = _console(sys.stderr)
        return self._stderr_console

    # --- writing ----------------------------------------------------------------------------

    def _write(self, text: str) -> None:
        with self._lock:
            print(text, flush=True)

    def _say(self, text: str) -> None:
        with contextlib.suppress(OSError):
            if self._stderr_console is not None:
                # The live bar would overwrite text that is printed without its console.
                self._stderr_console.print(printable(text), soft_wrap=True)
            else:
                with self._lock:
                    print(printable(text), file=sys.stderr, flush=True)


def _console(stream: Any) -> Console:
    from rich.console import Console

    class Raising(Console):
        """Lets `main` handle a reader that is gone; rich itself would exit with 1."""

        def on_broken_pipe(self) -> None:
            raise  # noqa: PLE0704 - rich calls it while it handles the BrokenPipeError

    # Names may contain text that rich would treat as markup. Output to a pipe is never cut.
    width = None if stream.isatty() else 10_000
    return Raising(file=stream, width=width, markup=False, emoji=False, highlight=False)


def interrupted() -> dict[str, Any]:
    """Describe that a signal interrupted the command."""
    return {
        "type": "Interrupted",
        "message": "interrupted",
        "hint": "",
        "retryable": True,
        "exit_code": int(ExitCode.INTERRUPTED),
    }
