"""Shows the library's transfer events: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mx_artifact_cli.event_notes import EventNotes
from mx_artifact_cli.output import Format, Output
from mx_artifact_cli.text import format_bytes, format_seconds
from mx_artifacts.observability.catalogue import (
    SpanReceived,
    TransferFinished,
    TransferStarted,
)
from mx_artifacts.observability.events import Event, EventSink
from mx_artifacts.runtime.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from rich.progress import Progress

LINE_INTERVAL_SECONDS = 5.0
"""Interval of plain lines [s]: short enough to show progress, long enough for a short log."""


@contextlib.contextmanager
def progress(output: Output, *, clock: Clock = SYSTEM_CLOCK) -> Iterator[EventSink]:
    """Yield the sink that shows events in the format of `output`."""
    notes = EventNotes(output)
    if output.format is Format.JSONL:
        yield _each_of(output.forward, notes)
    elif output.format is not Format.HUMAN:
        yield notes
    elif sys.stderr.isatty():
        with contextlib.closing(ProgressBar(output)) as bar:
            yield _each_of(bar, notes)
    else:
        yield _each_of(ProgressLines(output, clock), notes)


def _each_of(*sinks: EventSink) -> EventSink:
    def call(event: Event) -> None:
        for sink in sinks:
            sink(event)

    return call


class ProgressBar:
    """An EventSink that draws a bar on stderr while a transfer runs."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._bar: Progress | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, TransferStarted):
            self.close()  # of an earlier transfer that did not finish
            self._bar = _bar(self._output)
            self._task = self._bar.add_task("receiving", total=event.total_bytes)
            self._bar.start()
        elif isinstance(event, SpanReceived) and self._bar is not None:
            self._bar.advance(self._task, event.length_bytes)
        elif isinstance(event, TransferFinished):
            self.close()

    def close(self) -> None:
        """Remove the bar. Idempotent."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _bar(output: Output) -> Progress:
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=output.stderr_console(),
        transient=True,
        redirect_stdout=False,  # data stays on stdout
        redirect_stderr=False,
    )


class ProgressLines:
    """An EventSink that writes a line every few seconds while chunks arrive."""

    def __init__(self, output: Output, clock: Clock) -> None:
        self._output = output
        self._clock = clock
        self._lock = threading.Lock()  # chunks arrive from several threads
        self._begin(0)

    def _begin(self, total_bytes: int) -> None:
        self._total_bytes = total_bytes
        self._done_bytes = 0
        self._started = self._last_line = self._clock.monotonic()

    def __call__(self, event: Event) -> None:
        with self._lock:
            if isinstance(event, TransferStarted):
                self._begin(event.total_bytes)
            elif isinstance(event, SpanReceived):
                self._done_bytes += event.length_bytes
                now = self._clock.monotonic()
                if now - self._last_line >= LINE_INTERVAL_SECONDS:
                    self._last_line = now
                    self._output.note(self._line(now - self._started))

    def _line(self, elapsed_seconds: float) -> str:
        rate = self._done_bytes / elapsed_seconds
        left = max(0, self._total_bytes - self._done_bytes)
        percent = 100 * self._done_bytes // max(1, self._total_bytes)
        return (
            f"received {format_bytes(self._done_bytes)} of {format_bytes(self._total_bytes)} "
            f"({percent} %), {format_bytes(rate)}/s, {format_seconds(left / rate)} left"
        )
