"""The console entry: formats, errors and their exit codes, signals."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mx_artifact_cli.outcomes import KindsFailedError
from mx_artifact_cli.output import Output
from mx_artifacts.errors import (
    ConfigurationError,
    IncompatibleSourceError,
    MxArtifactsError,
    NoSourceError,
    PeerLostError,
    TransferFailedError,
)
from tests.support.cli import RunCli, add_verb, runner
from tests.support.install_cases import NEW, make_bundle


@pytest.fixture(name="run")
def _run(capsys: pytest.CaptureFixture[str]) -> RunCli:
    return runner(capsys)


def fail_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def body(output: Output) -> None:
        raise error

    add_verb(monkeypatch, "fake", body)


def all_errors(kind: type[MxArtifactsError] = MxArtifactsError) -> Iterator[MxArtifactsError]:
    if kind is KindsFailedError:
        yield KindsFailedError({"triton": NoSourceError("none")}, total=2)
    else:
        yield kind("it failed", hint="do this")
    for below in kind.__subclasses__():
        yield from all_errors(below)


@pytest.mark.parametrize("error", list(all_errors()), ids=lambda e: type(e).__name__)
def test_every_error_class_ends_with_its_code_and_is_one_json_object(
    error: MxArtifactsError, run: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_with(error, monkeypatch)
    ended = run("fake", "--format", "json")
    assert ended.code == error.exit_code
    assert ended.out == ""
    assert (
        ended.error.items()
        >= {
            "type": type(error).__name__,
            "message": str(error),
            "hint": error.hint(),
            "retryable": error.retryable,
            "exit_code": int(error.exit_code),
        }.items()
    )


def test_a_human_reads_the_error_and_the_next_step(
    run: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_with(NoSourceError("nobody serves it", hint="start one"), monkeypatch)
    assert run("fake").err == "error: nobody serves it\nnext: start one\n"
    assert run("fake", "--format", "quiet").err == "error: nobody serves it\nnext: start one\n"


def test_reasons_attempts_and_failures_are_printed(
    run: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = [("10.0.0.1:6555", PeerLostError("gone"))]
    for error, key, line in (
        (IncompatibleSourceError("no fit", reasons={"a/b": "sm80"}), "reasons", "  a/b: sm80"),
        (TransferFailedError("all", attempts=attempts), "attempts", "  10.0.0.1:6555: gone"),
        (
            KindsFailedError({"triton": NoSourceError("none")}, total=2),
            "failures",
            "  triton: none",
        ),
    ):
        fail_with(error, monkeypatch)
        assert line in run("fake").err.splitlines()
        assert key in run("fake", "--format=jsonl").error


def test_a_cause_that_is_in_the_message_is_not_printed_again(
    run: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = [("10.0.0.1:6555", PeerLostError("gone")), ("b:1", PeerLostError("silent"))]
    fail_with(TransferFailedError("none: 10.0.0.1:6555: gone", attempts=attempts), monkeypatch)
    first, second, hint = run("fake").err.splitlines()
    assert first == "error: none: 10.0.0.1:6555: gone"
    assert second == "  b:1: silent"
    assert hint.startswith("next: ")
    assert len(run("fake", "--format", "json").error["attempts"]) == 2


def test_failed_kinds_are_a_part_or_all(run: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    causes = {"triton": NoSourceError("none"), "inductor": PeerLostError("gone")}
    fail_with(KindsFailedError(causes, total=3), monkeypatch)
    assert run("fake").code == 3
    fail_with(KindsFailedError(causes, total=2), monkeypatch)
    assert run("fake").code == NoSourceError.exit_code


@pytest.mark.parametrize(
    "args",
    [
        ["fake", "--no-such-option"],
        ["no-such-verb"],
        [],
        ["sources"],
        ["fake", "--format"],
        ["fake", "superfluous"],
        ["fetch-and-install", "--model", "m"],
    ],
)
def test_usage_errors_end_with_2_in_any_format(
    args: list[str], run: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_verb(monkeypatch, "fake", lambda output: None)
    human = run(*args)
    assert (human.code, human.out) == (2, "")
    assert human.err.startswith("error: ")
    assert "--help'" in human.err
    ended = run("--format", "json", *args)
    assert ended.code == 2
    assert ended.error["type"] == "UsageError"
    assert ended.error["exit_code"] == 2


def test_a_format_that_does_not_exist_is_a_usage_error(run: RunCli) -> None:
    ended = run("serve", "--format", "xml")
    assert ended.code == 2
    assert "'xml' is not one of 'human', 'json', 'jsonl', 'quiet'" in ended.err


def test_format_is_taken_before_and_after_the_verb(
    run: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(output: Output) -> None:
        output.line("for humans")
        output.record("step", {"n": 1})
        output.result({"done": True})
        output.note("by the way")

    add_verb(monkeypatch, "fake", body)
    assert run("fake").out == "for humans\n"
    assert run("fake").err == "by the way\n"
    for args in (
        ["--format", "json", "fake"],
        ["fake", "--format", "json"],
        ["--format=jsonl", "fake", "--format=json"],
    ):
        ended = run(*args)
        assert (ended.code, ended.data, ended.err) == (0, {"done": True}, "")
    lines = run("fake", "--format", "jsonl").out.splitlines()
    assert [json.loads(line) for line in lines] == [
        {"event": "step", "n": 1},
        {"event": "result", "done": True},
    ]
    quiet = run("fake", "--format", "quiet")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")


def test_an_unexpected_exception_is_one_line_and_a_traceback_with_debug(
    run: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_with(ZeroDivisionError("oh"), monkeypatch)
    ended = run("fake")
    assert ended.code == 1
    assert ended.err.splitlines()[0] == "error: unexpected ZeroDivisionError: oh"
    assert "Traceback" not in ended.err
    assert "Traceback" in run("fake", "--debug").err
    assert run("fake", "--format", "json").error["exit_code"] == 1


def test_interrupts_end_with_130_and_unwind(run: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    unwound = []
    for number in (signal.SIGINT, signal.SIGTERM):

        def body(output: Output, number: signal.Signals = number) -> None:
            try:
                os.kill(os.getpid(), number)
                signal.pause()
            finally:
                os.kill(os.getpid(), signal.SIGTERM)  # does not interrupt the unwinding
                unwound.append(number)

        add_verb(monkeypatch, "fake", body)
        ended = run("fake", "--format", "json")
        assert ended.code == 130
        assert ended.error["type"] == "Interrupted"
    assert unwound == [signal.SIGINT, signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_the_librarys_warnings_are_shown(run: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    log = logging.getLogger("mx_artifacts.somewhere")

    def body(output: Output) -> None:
        log.warning("chunk size %s", "odd")
        log.debug("detail")

    add_verb(monkeypatch, "fake", body)
    assert run("fake").err == "warning: chunk size odd\n"
    assert run("fake", "--format=json").error == {"type": "warning", "message": "chunk size odd"}
    assert run("fake", "--format=quiet").err == ""
    assert "mx_artifacts.somewhere: detail" in run("fake", "--debug").err


@pytest.mark.process
@pytest.mark.parametrize("args", [("serve", "--help"), ("inspect", "a.tar")], ids=" ".join)
def test_a_reader_that_leaves_is_not_complained_about(
    args: tuple[str, ...], tmp_path: Path
) -> None:
    make_bundle(tmp_path / "a.tar", NEW)  # which is shown as a table
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as stdout:
        ended = subprocess.run(
            [sys.executable, "-m", "mx_artifact_cli", *args],
            cwd=tmp_path,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (141, "")


def test_values_that_make_no_sense_are_refused_by_name(run: RunCli) -> None:
    ended = run("serve", "--port", "http", "--format", "json")
    assert ended.code == 2
    assert ended.error["type"] == ConfigurationError.__name__
    assert ended.error["message"].startswith("--port is 'http'")
