"""The transfer benchmark runs, small, and leaves nothing behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.transfer import PREFIX, RAM
from tests.support.nodes import REPOSITORY, clean_environment
from tests.support.processes import DEADLINE_SECONDS

pytestmark = pytest.mark.skipif(not RAM.is_dir(), reason=f"{RAM} is not there")


def test_a_small_run_measures_what_it_is_asked_for(tmp_path: Path) -> None:
    output = tmp_path / "bench" / "transfer.json"
    size = ("--mib", "2", "--files", "40", "--rounds", "1")
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "benchmarks.transfer", *size),
            *("--only", "tmpfs,incremental", "--output", str(output)),
        ],
        env=clean_environment(tmp_path) | {"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'cli'}"},
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            printed, said = process.communicate(timeout=DEADLINE_SECONDS)
        finally:
            process.kill()
    assert process.returncode == 0, said
    report = json.loads(output.read_text())
    measured = {name for name, ratio in report["ratios"].items() if ratio is not None}
    assert measured == {"fetch_over_cp_tmpfs", "incremental_time", "incremental_bytes"}
    assert report["reasons"]["seal_over_tar"] == "not asked for: --only"
    assert all(len(figure["samples"]) == 1 for figure in report["seconds"].values())
    assert "| fetch_tmpfs |" in printed
    assert list(output.parent.iterdir()) == [output]
    assert list(RAM.glob(f"{PREFIX}{process.pid}-*")) == []
