"""The transfer benchmark runs, small, and leaves nothing behind."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.network import NoNetworkError, network
from benchmarks.harness.processes import finished
from benchmarks.harness.real_caches import NoCompilerError, RealCache
from benchmarks.transfer import PREFIX, RAM
from tests.support.child import Child
from tests.support.nodes import clean_environment

NAMESPACES = Path("/run/netns")

pytestmark = pytest.mark.skipif(not RAM.is_dir(), reason=f"{RAM} is not there")


def _run(tmp_path: Path, *words: str, program: str = "transfer") -> tuple[Any, str]:
    """Run a benchmark small; return its report and what it printed. Nothing else is left."""
    output = tmp_path / "bench" / f"{program}.json"
    size = ("--mib", "2", "--files", "40", "--rounds", "1")
    command: list[str | Path] = [
        sys.executable,
        "-m",
        f"benchmarks.{program}",
        *size,
        *words,
        "--output",
        output,
    ]
    with Child(command, env=clean_environment(tmp_path)) as child:
        code, printed = child.finish()
        assert code == 0, child.errors
    assert list(output.parent.iterdir()) == [output]
    assert list(RAM.glob(f"{PREFIX}{child.process.pid}-*")) == []
    assert not list(NAMESPACES.glob(f"*-{child.process.pid}-*"))
    return json.loads(output.read_text()), printed


def test_a_small_run_measures_what_it_is_asked_for(tmp_path: Path) -> None:
    report, printed = _run(tmp_path, "--only", "tmpfs,incremental")
    measured = {name for name, ratio in report["ratios"].items() if ratio is not None}
    assert measured == {"fetch_over_cp_tmpfs", "incremental_time", "incremental_bytes"}
    assert report["reasons"]["seal_over_tar"] == "not asked for: --only"
    measured_seconds = [figure for figure in report["seconds"].values() if figure is not None]
    assert all(len(figure["samples"]) == 1 for figure in measured_seconds)
    assert "| fetch_tmpfs |" in printed


def test_a_real_cache_is_moved_as_its_own_kind(tmp_path: Path) -> None:
    try:
        RealCache("tvm_ffi", tmp_path, tmp_path)
    except NoCompilerError as error:
        pytest.skip(str(error))
    report, printed = _run(tmp_path, "--only", "real/tvm_ffi")
    for name in ("fetch_tvm_ffi", "cp_tvm_ffi", "tar_pipe_tvm_ffi"):
        assert len(report["seconds"][name]["samples"]) == 1
    assert report["seconds"]["fetch_vllm"] is None
    assert report["reasons"]["fetch_vllm"] == "not asked for: --only"
    assert "| fetch_tvm_ffi |" in printed


def test_each_stage_is_timed(tmp_path: Path) -> None:
    report, printed = _run(tmp_path, program="stages")
    stages = report["stages"]
    assert {"seal.read", "seal.index", "fetch.write", "fetch.install.receipt"} <= stages.keys()
    assert stages["seal"]["least"] > stages["seal.read"]["least"] > 0
    assert "| fetch_changed.begin.unchanged |" in printed


def test_an_agent_starts_as_in_a_library_and_as_in_a_program() -> None:
    _, printed = finished([sys.executable, "-m", "benchmarks.agent_start", "--rounds", "1"])
    rows = [line.split("|")[1].strip() for line in printed.splitlines() if line.startswith("|")]
    assert rows[2:] == ["library", "program"]


def test_a_link_is_as_slow_as_it_is_shaped_and_a_killed_target_starts_again(tmp_path: Path) -> None:
    try:
        with network(1, mbit=50):
            pass
    except NoNetworkError as error:
        pytest.skip(str(error))
    report, _ = _run(tmp_path, "--only", "resume", "--mbit", "50")
    assert 0 < report["ratios"]["resume_bytes"] <= 1
    (seconds,) = report["seconds"]["fetch_shaped"]["samples"]
    assert seconds > (2 << 23) / 50e6 * 0.8  # the shaper lets a little through at once
