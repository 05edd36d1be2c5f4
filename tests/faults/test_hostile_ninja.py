"""What ninja's files say, in a fetched cache or an existing one, does nothing to who looks at it.

In processes of their own: in little memory, with a ninja on PATH that tells what it was asked.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.child import ended
from tests.support.hostile_modules import (
    BUILD_FILES,
    ODD_FILES,
    make_modules,
    make_odd_modules,
    write_module,
)
from tests.support.install_cases import Picture, picture
from tests.support.ninja_program import NINJA
from tests.support.nodes import Cluster
from tests.support.processes import run_cli, serving

MEMORY_BYTES = 256 << 20
"""Of address space, for Python and all that it imports."""


STATED = {"torch_version": "2.13", "cuda_version": "13.0", "gpu_arch": "sm90"}
WORDS = (
    *("--kind", "tvm_ffi", "--framework", "vllm"),
    *(word for pair in STATED.items() for word in ("--identity", "=".join(pair))),
)


@pytest.fixture(name="asked")
def _asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a ninja on PATH that writes down where it is run; return the file with that."""
    asked, program = tmp_path / "asked", tmp_path / "bin" / "ninja"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {asked}\nexec {NINJA} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return asked


def places_asked(asked: Path) -> set[str]:
    """Return the directories in which ninja was run, but for those of our own."""
    lines = asked.read_text().splitlines() if asked.exists() else []
    return {line for line in lines if "mx-artifacts-ninja-" not in line and "--version" not in line}


def judged(staged: Path, root: Path) -> Any:
    """Relocate and judge in a process of its own."""
    command = (sys.executable, "-m", "tests.support.hostile_modules")
    done = ended([*command, staged, root, str(MEMORY_BYTES)])
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def of_outside(outside: Path) -> tuple[Picture | None, str]:
    return picture(outside), (outside / "victim").read_text()


def test_build_files_of_others(tmp_path: Path, asked: Path) -> None:
    outside, staged, root = tmp_path / "outside", tmp_path / "staged", tmp_path / "root"
    make_modules(staged, outside)
    make_modules(root, tmp_path / "same")
    before, existing = of_outside(outside), (of_outside(tmp_path / "same"), picture(root))

    result = judged(staged, root)

    assert of_outside(outside) == before
    assert (of_outside(tmp_path / "same"), picture(root)) == existing
    beside = ["bin", "outside", "outside.fifo", "root", "same", "same.fifo", "staged"]
    assert sorted({*os.listdir(tmp_path)} - {"asked"}) == beside
    assert places_asked(asked) == set()
    assert os.listdir(staged) == []
    assert result["dropped"].keys() == BUILD_FILES.keys()
    told = {**result["faults"], **result["doubts"]}
    assert told.keys() == BUILD_FILES.keys()
    for name, (_, construct) in BUILD_FILES.items():
        for reason in (result["dropped"][name], told[name]):
            assert construct in reason, (name, reason)
            assert len(reason) < 600
            assert reason.isprintable()


def test_files_that_are_none(tmp_path: Path, asked: Path) -> None:
    outside, staged, root = tmp_path / "outside", tmp_path / "staged", tmp_path / "root"
    outside.mkdir()
    (outside / "victim").write_text("rule r\n  command = x\nbuild o: r i\n")
    make_odd_modules(staged, outside)
    make_odd_modules(root, outside)
    before = of_outside(outside)

    result = judged(staged, root)

    assert of_outside(outside) == before
    assert places_asked(asked) == set()
    assert result["dropped"].keys() == ODD_FILES.keys()
    assert {**result["faults"], **result["doubts"]}.keys() == ODD_FILES.keys()


def test_logs_that_name_what_is_elsewhere(tmp_path: Path, asked: Path) -> None:
    outside, staged, root = tmp_path / "outside", tmp_path / "staged", tmp_path / "root"
    outside.mkdir()
    root.mkdir()
    (outside / "victim").write_text("precious")
    victim = os.fsencode(outside / "victim")
    build = b"rule r\n  command = x\nbuild o: r i\n"
    line = b"# ninja log v7\n1\t2\t3\t%s\tff\n"
    write_module(staged / "absolute", build, line % victim)
    write_module(staged / "upwards", build, line % b"../../outside/victim")
    before = of_outside(outside)
    result = judged(staged, root)
    assert of_outside(outside) == before
    for name in ("absolute", "upwards"):
        assert "is outside its directory" in result["dropped"][name]


def test_a_fetch_of_them(cluster: Cluster, tmp_path: Path, asked: Path) -> None:
    """From a publisher that does not look, through the whole product."""
    outside, warm, cold = tmp_path / "outside", tmp_path / "warm", tmp_path / "cold"
    make_modules(warm, outside)
    before = of_outside(outside)
    env = {**cluster.env, "PATH": os.environ["PATH"]}
    stated = ("--identity", "tvm_ffi_version=0.1")
    publish = ("--model", cluster.model, "--root", str(warm), "--bundle-root")
    fetch = ("--model", cluster.model, "--root", str(cold), "--bundle-root")
    with serving(
        "publish", *WORDS, *stated, *publish, str(tmp_path / "sealed"), env=env, logs=tmp_path
    ):
        done = run_cli(
            *("fetch-and-install", *WORDS, *stated, *fetch, str(cluster.bundle_root)),
            *("--allow-other-root", "--format", "json"),
            env=env,
        )
        assert done.returncode == 3, done.stderr
        (root,) = json.loads(done.stdout)["installed"][0]["roots"]
        assert root["installed"] == []
        assert root["dropped"].keys() == BUILD_FILES.keys()
    assert of_outside(outside) == before
    assert places_asked(asked) == set()
