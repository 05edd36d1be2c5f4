"""Text for humans, records for programs."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from mx_artifact_cli.describe import identity_facts, identity_object, skipped_groups, skipped_lines
from mx_artifact_cli.output import Format, Output
from mx_artifact_cli.text import count_of, format_bytes, format_seconds, printable
from mx_artifacts.bundle.tree import SkippedPath
from mx_artifacts.core.identity import BackendFramework, SourceIdentity, SourceType
from mx_artifacts.errors import NoSourceError
from mx_artifacts.observability.catalogue import BackendUp, DiscoveryWaiting, RootPacked


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (64 << 20, "64.0 MiB"), (3 << 40, "3.0 TiB")],
)
def test_bytes(count: int, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "0.25 s"), (42, "42 s"), (185, "3 min 5 s"), (7620, "2 h 7 min"), (59.9, "1 min 0 s")],
)
def test_seconds(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_counts() -> None:
    assert (count_of(1, "file"), count_of(0, "file")) == ("1 file", "0 files")
    assert count_of(2, "entry", "entries") == "2 entries"


def test_hostile_names_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert printable("a\x1b[2J\nb\u202e\udcff ü") == "a\\x1b[2J\\nb\\u202e\\udcff ü"
    output = Output()
    output.line("\x1b]0;x\x07")
    output.table(("name",), [("[red]\x1b[31m\udcff",)])
    output.note("\x1b[1m")
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out + captured.err
    assert "[red]" in captured.out  # not taken for markup either


def test_a_table_in_a_pipe_is_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    Output().table(("name", "path"), [("x", "y" * 300)])
    assert "y" * 300 in capsys.readouterr().out


def test_facts_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    Output().facts({"a": 1, "long": "two"}, indent="  ")
    assert capsys.readouterr().out == "  a     1\n  long  two\n"


@dataclass(frozen=True)
class Report:
    root: Path
    skipped: tuple[str, ...]


def test_events_become_records_of_plain_data(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(Format.JSONL)
    output.forward(RootPacked("/x", 1, 2, 3, [("a", "why")]))
    output.forward(DiscoveryWaiting(NoSourceError("none"), 1.0))
    packed, waiting = map(json.loads, capsys.readouterr().out.splitlines())
    assert (packed["event"], packed["root"]) == ("seal.packed", "/x")
    assert packed["skipped"] == [["a", "why"]]
    assert waiting["error"]["type"] == "NoSourceError"


class _Gone(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_events_and_messages_survive_readers_that_left(monkeypatch: pytest.MonkeyPatch) -> None:
    output = Output(Format.JSONL)
    monkeypatch.setattr(sys, "stdout", _Gone())
    monkeypatch.setattr(sys, "stderr", _Gone())
    output.forward(BackendUp())
    output.warn("nobody hears this")
    with pytest.raises(BrokenPipeError):
        output.result({})


def test_an_identity_is_shown_with_origins_and_without_empty_fields() -> None:
    identity = SourceIdentity(
        mx_source_type=SourceType.TRITON_CACHE,
        model_name="m",
        backend_framework=BackendFramework.VLLM,
        extra_parameters={"triton_key": "k"},
    )
    assert identity_object(identity) == {
        "mx_source_type": "triton_cache",
        "model_name": "m",
        "backend_framework": "vllm",
        "extra_parameters": {"triton_key": "k"},
    }
    facts = identity_facts(identity, {"model_name": "--model"})
    assert facts["model_name"] == "m  (--model)"
    assert facts["triton_key"] == "k"


def test_skipped_paths_are_grouped_by_reason() -> None:
    locks = [SkippedPath(f"{n}.lock", "a lock") for n in range(5)]
    skipped = [*locks, SkippedPath("s", "a socket")]
    groups = skipped_groups(skipped)
    assert groups["a lock"] == {"count": 5, "examples": ["0.lock", "1.lock", "2.lock"]}
    assert skipped_lines(groups) == [
        "skipped 5: a lock (0.lock, 1.lock, 2.lock, …)",
        "skipped 1: a socket (s)",
    ]


def test_reasons_that_differ_in_the_entrys_name_are_one() -> None:
    skipped = [
        *(SkippedPath(f"k{n}", f"k{n}/a.cubin was being written while packed") for n in range(40)),
        *(SkippedPath(f"k{n}", f"k{n} vanished while packed") for n in range(40, 42)),
        SkippedPath("k1", "k10 is not it"),
    ]
    assert skipped_lines(skipped_groups(skipped)) == [
        "skipped 40: one of its files was being written while packed (k0, k1, k2, …)",
        "skipped 2: it vanished while packed (k40, k41)",
        "skipped 1: k10 is not it (k1)",
    ]


def test_reasons_beyond_the_maximum_are_only_counted() -> None:
    groups = skipped_groups(SkippedPath(f"k{n}", f"reason {n}") for n in range(15))
    lines = skipped_lines(groups)
    assert len(lines) == 11
    assert lines[-1] == "skipped 5: 5 other reasons (--format json shows all)"
