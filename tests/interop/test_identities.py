"""The reference profile gives the source ids that the reference's engine loaders look for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mx_artifacts.core.identity import compute_mx_source_id
from mx_artifacts.identity.identify import Profile, probe_identity
from mx_artifacts.kinds.registry import all_kinds
from mx_artifacts.kinds.triton.compiler import TritonBuild
from mx_artifacts.node.installed import TorchBuild
from tests.support.made_up_node import Node, made_up_node
from tests.support.peers import Peer

pytestmark = pytest.mark.interop

MODEL = "org/Mödel"
ENGINE = {
    "tensor_parallel_size": 2,
    "pipeline_parallel_size": 1,
    "expert_parallel_size": 4,
    "dtype": "bfloat16",
    "quantization": "fp8",
    "revision": "r1",
}
VERSIONS = {
    "tilelang_version": "tilelang",
    "cutlass_dsl_version": "nvidia-cutlass-dsl",
    "flashinfer_version": "flashinfer-python",
    "tvm_ffi_version": "apache-tvm-ffi",
}


@pytest.fixture(name="node")
def _node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    yield from made_up_node(monkeypatch)


@pytest.mark.parametrize("extras", [True, False], ids=["extras found", "extras not found"])
def test_ids_are_those_of_the_loaders(node: Node, tmp_path: Path, extras: bool) -> None:
    node.versions |= {"vllm": "0.33.0", "sglang": "0.33.0"}
    node.torch = TorchBuild("2.14.1", "cuda", "13.0")
    node.triton = TritonBuild("3.8.0", "aB1", "aB1" if extras else "")
    node.deep_gemm_1_key = "a1b2c3d4e5f6" if extras else ""
    facts = {name: node.versions[dist] if extras else "" for name, dist in VERSIONS.items()} | {
        "backend_framework_version": "0.33.0",
        "torch_version": "2.14.1",
        "cuda_version": "13.0",
        "gpu_arch": "sm90",
        "triton_version": "3.8.0",
        "triton_key": node.triton.reference_key,
        "deep_gemm_jit_key": node.deep_gemm_1_key,
    }
    if not extras:
        for dist in VERSIONS.values():
            del node.versions[dist]
    peer = Peer(tmp_path / "peer", {**os.environ, "HOME": str(tmp_path)})
    given = {"model_name": MODEL, "engine": ENGINE, "facts": facts}
    theirs = peer.run("peer_identity.py", given)["ids"]
    assert set(theirs) == {"vllm", "sglang"}
    for engine, ids in theirs.items():
        ours = {}
        for kind in all_kinds():
            probed = probe_identity(
                kind,
                model_name=MODEL,
                overrides={n: str(v) for n, v in ENGINE.items()} | {"backend_framework": engine},
                env={},
                profile=Profile.REFERENCE,
            )
            ours[str(int(kind.source_type))] = compute_mx_source_id(probed.identity)
        assert {number: ours[number] for number in ids} == ids
