"""Progress: plain lines, the bar, records."""

from __future__ import annotations

import json
import sys
from io import StringIO

import pytest

from mx_artifact_cli.output import Format, Output
from mx_artifact_cli.progress import progress
from mx_artifacts.errors import InstallLockedError, NoSourceError
from mx_artifacts.observability.catalogue import (
    DiscoveryWaiting,
    FetchWaiting,
    SpanReceived,
    TransferFinished,
    TransferStarted,
)
from mx_artifacts.runtime.clock import FakeClock

MIB = 1024 * 1024
STARTED = TransferStarted(100 * MIB, 10)
CHUNK = SpanReceived(10 * MIB)
FINISHED = TransferFinished(100 * MIB, 10)


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_lines_come_every_few_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    clock = FakeClock()
    with progress(Output(), clock=clock) as sink:
        sink(STARTED)
        for _ in range(10):
            clock.advance(2)
            sink(CHUNK)
        sink(FINISHED)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "received 30.0 MiB of 100.0 MiB (30 %), 5.0 MiB/s, 14 s left",
        "received 60.0 MiB of 100.0 MiB (60 %), 5.0 MiB/s, 8.00 s left",
        "received 90.0 MiB of 100.0 MiB (90 %), 5.0 MiB/s, 2.00 s left",
    ]


def test_the_progress_starts_again_with_a_second_source(capsys: pytest.CaptureFixture[str]) -> None:
    clock = FakeClock()
    with progress(Output(), clock=clock) as sink:
        for _ in range(2):  # the first one is lost half-way
            sink(STARTED)
            clock.advance(6)
            sink(CHUNK)
    assert [line.split(",")[0] for line in capsys.readouterr().err.splitlines()] == [
        "received 10.0 MiB of 100.0 MiB (10 %)",
        "received 10.0 MiB of 100.0 MiB (10 %)",
    ]


def test_a_terminal_shows_a_bar_with_bytes_and_rate(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    output = Output()
    with progress(output) as sink:
        sink(STARTED)
        sink(CHUNK)
        output.note("a word in between")
        sink(STARTED)
        sink(CHUNK)
        sink(CHUNK)
        output.line("data")
        sink(FINISHED)
        sink(STARTED)  # and is left alone, as by an error
    shown = terminal.getvalue()
    assert "a word in between" in shown
    assert "20.0/100.0 MiB" in shown
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 3  # the cursor is back
    assert capsys.readouterr().out == "data\n"


def test_why_it_waits_is_said_once_for_each_reason(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(Output()) as sink:
        for text in ("none", "none", "server is down", "none"):
            sink(DiscoveryWaiting(NoSourceError(text), 1.0))
        sink(FetchWaiting(InstallLockedError("another process")))
    said = "waiting: none\nwaiting: server is down\nwaiting: another process\n"
    assert capsys.readouterr().err == said


def test_programs_get_events_or_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for format in (Format.JSON, Format.QUIET):
        with progress(Output(format)) as sink:
            sink(STARTED)
    assert capsys.readouterr() == ("", "")
    with progress(Output(Format.JSONL)) as sink:
        sink(CHUNK)
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"event": "transfer.span", "length_bytes": 10 * MIB}
    assert captured.err == ""
