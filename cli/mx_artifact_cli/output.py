"""What the user sees: data on stdout, all else on stderr, in the format that was asked for.

    human  tables and lines
    json   one object on stdout when the result is known; errors and warnings as objects on stderr
    jsonl  one object a line for each event and record, then one whose `event` is "result"
    quiet  errors only

Commands call everything; each method does something only where its format has a place for it.
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
    """Turn what JSON does not know, such as a library value in an event, into what it does."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, MxArtifactsError):
        return error_object(value)
    return str(value)


class Output:
    """Writes in one format. Thread-safe, since events come from any thread.

    Writing to stdout raises BrokenPipeError when its reader is gone (`main` ends quietly then);
    writing to stderr never raises.
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
        """Write names and values for humans, aligned, one a line."""
        width = max(map(len, facts), default=0)
        for name, value in facts.items():
            self.line(f"{indent}{name:<{width}}  {value}")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Write a table for humans; it is cut to the width of a terminal only."""
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
        """Write one record for programs that follow along (jsonl)."""
        if self.format is Format.JSONL:
            self._write(json.dumps({"event": event, **data}, default=_plain))

    def result(self, data: Mapping[str, object]) -> None:
        """Write the command's result for programs: json's one object, jsonl's last."""
        if self.format is Format.JSON:
            self._write(json.dumps(data, default=_plain, indent=2))
        self.record("result", data)

    def forward(self, event: Event) -> None:
        """Write a library event as a record; an EventSink, so it never raises."""
        with contextlib.suppress(OSError):
            self.record(event.name, event.fields())

    # --- all else, on stderr ----------------------------------------------------------------

    def note(self, text: str) -> None:
        """Tell a human what is going on."""
        if self.format is Format.HUMAN:
            self._say(text)

    def warn(self, text: str) -> None:
        """Tell what may not be as the user expects."""
        if self.format is Format.HUMAN:
            self._say(f"warning: {text}")
        elif self.format is not Format.QUIET:
            self._say(json.dumps({"type": "warning", "message": text}))

    def notice(self, text: str, data: Mapping[str, object]) -> None:
        """Tell what was asked for expressly, in every format; `data` is it for programs."""
        if self.format in (Format.JSON, Format.JSONL):
            self._say(json.dumps({"type": "notice", "message": text, **data}, default=_plain))
        else:
            self._say(text)

    def error(self, error: MxArtifactsError) -> None:
        """Say why a command, or a part of it, failed, and what to do next."""
        self.failure(error_object(error))

    def failure(self, described: Mapping[str, Any]) -> None:
        """Write an error that is already described as `error_object` does it."""
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
        """Return the rich console that a progress bar must share with our messages."""
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
                # Below a live bar, plain printing would be drawn over.
                self._stderr_console.print(printable(text), soft_wrap=True)
            else:
                with self._lock:
                    print(printable(text), file=sys.stderr, flush=True)


def _console(stream: Any) -> Console:
    from rich.console import Console

    class Raising(Console):
        """Leaves a reader that is gone to `main`; rich itself would exit with 1."""

        def on_broken_pipe(self) -> None:
            raise  # noqa: PLE0704 - rich calls it while it handles the BrokenPipeError

    # Names may hold what rich takes for markup; a pipe has no width to cut to.
    width = None if stream.isatty() else 10_000
    return Raising(file=stream, width=width, markup=False, emoji=False, highlight=False)


def interrupted() -> dict[str, Any]:
    """Describe an end by a signal."""
    return {
        "type": "Interrupted",
        "message": "interrupted",
        "hint": "",
        "retryable": True,
        "exit_code": int(ExitCode.INTERRUPTED),
    }
