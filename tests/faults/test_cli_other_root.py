"""A cache that cannot be adapted to the target's root is refused before it is transferred."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.kind_trees import shared_library
from tests.support.nodes import Cluster
from tests.support.processes import run_cli, serving

STATED = {
    "torch_version": "2.13",
    "cuda_version": "13.0",
    "gpu_arch": "sm90",
    "tvm_ffi_version": "0.1",
    "ninja_version": "1.13.0",
    # The target has nothing on its PATH to find these with.
    "cuda_home": "/usr/local/cuda",
    "nvcc_version": "13.0",
    "cxx_version": "c++ 12.2",
}
WORDS = (
    *("--kind", "tvm_ffi", "--framework", "vllm"),
    *(word for pair in STATED.items() for word in ("--identity", "=".join(pair))),
)


def fetch(cluster: Cluster, *args: str, **variables: str) -> tuple[int, Any]:
    """Fetch on a node that has no ninja."""
    env = {**cluster.env, "PATH": str(cluster.directory), **variables}
    places = ("--model", cluster.model, "--bundle-root", str(cluster.bundle_root))
    done = run_cli("fetch-and-install", *WORDS, *places, *args, "--format", "json", env=env)
    return done.returncode, json.loads(done.stdout or done.stderr)


def test_another_root_without_ninja(cluster: Cluster, tmp_path: Path) -> None:
    warm, cold = tmp_path / "warm", tmp_path / "cold"
    module = warm / "scale_0123456789abcdef"
    module.mkdir(parents=True)
    (module / "build.ninja").write_text(f"rule c\n  command = c\nbuild a.o: c {module}/main.cpp\n")
    (module / ".ninja_log").write_text("# ninja log v7\n1\t2\t3\ta.o\tff\n")
    (module / ".ninja_deps").write_bytes(b"# ninjadeps\n\4\0\0\0")
    (module / "a.o").write_bytes(b"object")
    (module / "scale.so").write_bytes(shared_library())
    args = (
        "--model",
        cluster.model,
        "--root",
        str(warm),
        "--bundle-root",
        str(tmp_path / "sealed"),
    )
    with serving("publish", *WORDS, *args, env=cluster.env, logs=tmp_path):
        for more in ((), ("--dry-run",)):
            code, error = fetch(cluster, *more, TVM_FFI_CACHE_DIR=str(cold))
            assert (code, error["type"]) == (13, "IncompatibleSourceError")
            expected = f"its cache root is {warm}, here it is {cold} (TVM_FFI_CACHE_DIR)"
            assert expected in error["message"]
            assert "ninja is not on PATH" in error["message"]
            assert "--allow-other-root" in error["hint"]
        assert cluster.staged() == []
        assert not cold.exists()

        code, done = fetch(cluster, "--allow-other-root", TVM_FFI_CACHE_DIR=str(cold))
        assert code == 3  # it went on as it was told, to no avail
        (root,) = done["installed"][0]["roots"]
        assert root["installed"] == []
        assert f"built in {warm}" in root["dropped"][module.name]

        code, error = fetch(cluster, "--root", str(tmp_path / "named"))
        assert (code, f"{tmp_path / 'named'} (stated)" in error["message"]) == (13, True)
