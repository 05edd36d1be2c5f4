"""A made-up node, so that a test decides what the identity probes find."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from mx_artifacts.identity import identify as identity_module
from mx_artifacts.kinds import deep_gemm
from mx_artifacts.kinds.inductor import cpu_code
from mx_artifacts.kinds.triton import compiler
from mx_artifacts.kinds.triton.compiler import TritonBuild
from mx_artifacts.node import installed
from mx_artifacts.node.installed import CannotProbe, ComponentAbsent, TorchBuild
from mx_artifacts.probes import engines, gpu, packages, programs

NVCC_TEXT = """nvcc: NVIDIA (R) Cuda compiler driver
Cuda compilation tools, release 13.0, V13.0.88
Build cuda_13.0.r13.0/compiler.36424714_0"""
DEVICES = {
    0: {"arch": "sm90", "name": "NVIDIA H100 80GB HBM3", "sm_count": 132},
    1: {"arch": "sm120", "name": "NVIDIA RTX PRO 6000", "sm_count": 188},
}


class Node:
    """A made-up node: what the probes find is what a test says."""

    def __init__(self) -> None:
        self.torch = TorchBuild("2.14.1+cu130", "cuda", "13.0")
        self.devices = dict(DEVICES)
        self.versions = {
            "flashinfer-python": "0.7.4",
            "apache-tvm-ffi": "0.1.15",
            "tilelang": "0.1.15",
            "nvidia-cutlass-dsl": "4.8.1",
        }
        self.triton: TritonBuild | None = TritonBuild("3.8.0", "3.8.0abc-def", "3.8.0abc-def")
        self.deep_gemm_1_key = ""
        self.site = Path("/site-packages")
        self.programs = {"ninja": "1.13.2", "nvcc": NVCC_TEXT, "c++": "c++ (Debian) 12.2.0\nMore"}
        self.threads = "8"
        self.probes = 0

    def version(self, name: str) -> str:
        self.probes += 1
        if name not in self.versions:
            raise ComponentAbsent(f"{name} is not installed")
        return self.versions[name]

    def device(self, argv: tuple[str, ...], env: object, *, timeout_seconds: float) -> object:
        self.probes += 1
        if int(argv[-1]) not in self.devices:
            raise CannotProbe("cuInit failed with CUDA error 100")
        return self.devices[int(argv[-1])]

    def which(self, name: str, path: str) -> str | None:
        return f"/usr/local/bin/{name}" if name in self.programs else None

    def run(self, argv: tuple[str, ...], env: object, *, timeout_seconds: float) -> str:
        return self.threads if "-c" in argv else self.programs[Path(argv[0]).name]

    def package(self, module: str) -> Path:
        return self.site / module

    def old_deep_gemm_key(self, env: object) -> str:
        if not self.deep_gemm_1_key:
            raise ComponentAbsent("the installed deep_gemm has no jit/compiler.py")
        return self.deep_gemm_1_key

    def triton_build(self, env: object) -> TritonBuild:
        if self.triton is None:
            raise ComponentAbsent("triton is not installed")
        return self.triton


def made_up_node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    """Yield a node on which every probe succeeds; use it as the body of a fixture."""
    node = Node()
    for module in (engines, gpu, identity_module):
        monkeypatch.setattr(module, "torch_build", lambda: node.torch)
    for module in (installed, packages):
        monkeypatch.setattr(module, "distribution_version", node.version)
    monkeypatch.setattr(gpu, "run_for_json", node.device)
    monkeypatch.setattr(compiler, "triton_build", node.triton_build)
    monkeypatch.setattr(deep_gemm, "deep_gemm_key", lambda: "0123456789abcdef")
    monkeypatch.setattr(deep_gemm, "reference_deep_gemm_key", node.old_deep_gemm_key)
    monkeypatch.setattr(deep_gemm, "deep_gemm_includes", lambda: node.site / "deep_gemm/include")
    monkeypatch.setattr(shutil, "which", node.which)
    for module in (programs, cpu_code):
        monkeypatch.setattr(module, "run_program", node.run)
    for module in (packages, cpu_code):
        monkeypatch.setattr(module, "package_directory", node.package)
    identity_module._probe_once.cache_clear()
    yield node
    identity_module._probe_once.cache_clear()
