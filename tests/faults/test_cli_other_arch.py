"""Pain 1.1: a compile cache of another GPU architecture, equal in all else, is not taken."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.install_cases import fill
from tests.support.nodes import Cluster
from tests.support.processes import run_cli, serving

STATED = {
    "backend_framework_version": "0.33.0",
    "torch_version": "2.13",
    "cuda_version": "13.0",
    "triton_version": "3.8",
    "triton_key": "k",
    "gpu_name": "a GPU",
    "gpu_sm_count": "82",
}
WORDS = (
    *("--kind", "inductor", "--framework", "vllm"),
    *(word for pair in STATED.items() for word in ("--identity", "=".join(pair))),
)


def test_a_neighbouring_architecture(cluster: Cluster, tmp_path: Path) -> None:
    warm = fill(tmp_path / "warm", {"fxgraph/wf/fwf/graph": b"pickle"})
    model = ("--model", cluster.model)
    args = ("--arch", "sm_86", *model, "--root", str(warm), "--bundle-root", str(tmp_path / "b"))
    with serving("publish", *WORDS, *args, env=cluster.env, logs=tmp_path):
        cold = tmp_path / "cold"
        for arch in ("sm_120", "sm_86a"):
            place = ("--root", str(cold), "--bundle-root", str(cluster.bundle_root))
            words = (*WORDS, "--arch", arch, *model, *place, "--format", "json")
            done = run_cli("fetch-and-install", *words, env=cluster.env)
            error = json.loads(done.stderr)
            assert (done.returncode, error["type"]) == (13, "IncompatibleSourceError")
            (reason,) = error["reasons"].values()
            assert reason == f"gpu_arch is sm86 there, {arch.replace('_', '')} here"
            assert "mx-artifact why" in error["hint"]
        assert not cold.exists()
        assert cluster.staged() == []
