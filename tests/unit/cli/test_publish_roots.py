"""`publish --kind all` says of each kind that it leaves out where it looked (pain 2.4)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from mx_artifact_cli.commands import publish
from mx_artifact_cli.output import Output
from mx_artifact_cli.publish.options import PublishOptions
from mx_artifact_cli.selection import ALL, select_kinds
from mx_artifacts.artifacts.source.readiness import ReadinessSettings
from mx_artifacts.observability.events import ignore_events
from tests.support.kind_trees import KEY, make_tree

RANK = "0a1b2c3d4e/rank_0_0"


class Notes:
    """An output of which only the notes are looked at."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, line: str) -> None:
        self.lines.append(line)


def test_caches_that_vllm_moved_below_its_own_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM keeps Triton's and Inductor's directories in its tree, so their own places are empty."""
    for variable in ("TRITON_CACHE_DIR", "TRITON_HOME", "FLASHINFER_WORKSPACE_BASE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path / "vllm"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    tree = {f"{RANK}/triton_cache/{KEY}/block.cubin": None, f"{RANK}/backbone/graph.py": None}
    make_tree(tmp_path / "vllm/torch_compile_cache", tree)
    notes = Notes()
    at_once = ReadinessSettings(timeout_seconds=0.0)

    def present(*kind_names: str) -> list[str]:
        options = SimpleNamespace(settle=None, takes_all=ALL in kind_names)
        selected = select_kinds(kind_names, ())
        found = publish.kinds_to_seal(
            cast(Output, notes), cast(PublishOptions, options), selected, at_once, ignore_events
        )
        return [each.name for each in found]

    assert present("all") == ["inductor"]
    triton = f"{tmp_path}/home/.triton/cache (default ~/.triton/cache)"
    assert f"triton: nothing to publish in {triton}" in notes.lines
    assert not any(line.startswith("inductor") for line in notes.lines)
    assert len(notes.lines) > 4

    notes.lines.clear()
    assert present("inductor") == ["inductor"]
    assert notes.lines == []
