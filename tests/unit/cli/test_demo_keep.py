"""`demo --keep` says where the files are: in every format, and also when it fails."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from mx_artifact_cli.demo import requirements, scenario
from mx_artifact_cli.demo.scenario import Comparison
from mx_artifacts.errors import MxArtifactsError
from tests.support.cli import RunCli, runner
from tests.unit.cli.test_demo import comparison


@pytest.fixture(name="run")
def _run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> RunCli:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(requirements, "runnable_kinds", lambda wanted: (["triton"], []))
    play(monkeypatch, [comparison()])
    return runner(capsys)


def play(monkeypatch: pytest.MonkeyPatch, end: Sequence[Comparison] | MxArtifactsError) -> None:
    class Played:
        def __init__(self, *arguments: object) -> None:
            pass

        def play(self) -> Sequence[Comparison]:
            if isinstance(end, MxArtifactsError):
                raise end
            return end

    monkeypatch.setattr(scenario, "Scenario", Played)


@pytest.mark.parametrize("format", ["human", "json", "jsonl", "quiet"])
@pytest.mark.parametrize("fails", [False, True])
def test_the_place_is_named(
    format: str, fails: bool, run: RunCli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if fails:
        play(monkeypatch, MxArtifactsError("it failed"))
    ended = run("demo", "--keep", "--format", format)
    (kept,) = tmp_path.iterdir()
    assert ended.code == (1 if fails else 0)
    first = ended.err.splitlines()[0]
    if format in ("human", "quiet"):
        assert first == f"caches and logs are kept in {kept}"
    else:
        assert json.loads(first)["directory"] == str(kept)
        if not fails:
            result = json.loads(ended.out if format == "json" else ended.out.splitlines()[-1])
            assert result["directory"] == str(kept)


def test_no_missing_path_is_named(run: RunCli, tmp_path: Path) -> None:
    ended = run("demo", "--format", "json")
    assert (ended.code, ended.err) == (0, "")
    assert "directory" not in ended.data
    assert list(tmp_path.iterdir()) == []
