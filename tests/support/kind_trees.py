"""Trees as the compilers lay them out (docs/cache-facts.md), one fixture a cache kind.

A tree maps each file's path to the entry it belongs to, or to None where it must never be shipped.
To add a cache kind, add its tree to `KIND_TREES`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from mx_artifacts.kinds.base import CacheKind

KEY = "HJJAPFRJ3FOLEWKDZ5SP46MVTXNGY6HRKTI6SFOUH7TBZHIQKG2Q"
OTHER_KEY = "CANAAG3EMODMVP2PFQIAXRFXOI2245SNHYM5KCYSDWQ5KZCFZDJQ"
FX = "fwfnmdt4r6fgv4oslxgidwj4tq4mnn6qohdncqcexcyrublabsn3"
SHA = "5f2c8d1a" * 8
CPP = "nf/cnf5npvj6onchkpeh5elc4g6gnfzndebqpwltment5ocu63k2utb.main"
MEGA = f"torch_aot_compile/{SHA}"
ARTIFACT = "artifact_compile_range_1_8192_subgraph_0"
DEEP_JIT = "cache/gemm.00112233445566778899aabbccddeeff"
TILE = f"0.1.15/linux-x86_64/kernels/{SHA}"

KIND_TREES: dict[str, dict[str, str | None]] = {
    "triton": {
        f"{KEY}/block.cubin": KEY,
        f"{KEY}/block.json": KEY,
        f"{KEY}/__grp__block.json": KEY,
        f"{OTHER_KEY}/cuda_utils.cpython-311-x86_64-linux-gnu.so": OTHER_KEY,
        f"{KEY}/tmp.pid_123_6f9619ff-8b86-d011-b42d-00cf4fc964ff/block.cubin": None,
        f"{KEY}/lock": None,
    },
    "inductor": {
        f"{CPP}.so": f"{CPP}.so",
        f"{CPP}.cpp": f"{CPP}.cpp",
        "k2/ck2clcapnjgv4wsbh4ognqjfrrpdardsxfmg5qh72u4fxn6qlcau.py": (
            "k2/ck2clcapnjgv4wsbh4ognqjfrrpdardsxfmg5qh72u4fxn6qlcau.py"
        ),
        f"fxgraph/wf/{FX}/unwqsxsok": f"fxgraph/wf/{FX}/unwqsxsok",
        "aotautograd/aszevp37c/64hybo6j": "aotautograd/aszevp37c/64hybo6j",
        f"triton/0/{KEY}/block.cubin": f"triton/0/{KEY}",
        f"triton/0/{KEY}/__grp__block.json": f"triton/0/{KEY}",
        f"{MEGA}/rank_0_0/model": MEGA,
        f"{MEGA}/inductor_cache/triton/0/{KEY}/block.cubin": MEGA,
        f"{MEGA}/inductor_cache/triton/0/{KEY}/__grp__block.json": MEGA,
        "0a1b2c3d4e/rank_0_0/backbone/vllm_compile_cache.py": "0a1b2c3d4e",
        f"0a1b2c3d4e/rank_0_0/backbone/{ARTIFACT}": "0a1b2c3d4e",
        f"0a1b2c3d4e/rank_0_0/triton_cache/{KEY}/block.cubin": "0a1b2c3d4e",
        f"0a1b2c3d4e/rank_0_0/triton_cache/{KEY}/__grp__block.json": "0a1b2c3d4e",
        "locks/c7fzud2dbsk2ojzs3qpjuoive2hc6j4anmky3cyggi7senl35xu5.lock": None,
        "memoizer_cache.lock": None,
        "nf/.4242.140234.tmp": None,
        "nf/cnf5_CxxBuild/main.o": None,
        "k2/__pycache__/ck2.cpython-311.pyc": None,
        "precompiled_headers/abc.h.gch": None,
        "gpu_p2p_access_cache_for_0,1.json": None,
    },
    "deep_gemm": {
        "cache/kernel.gemm.0123abcd/kernel.cu": "cache/kernel.gemm.0123abcd",
        "cache/kernel.gemm.0123abcd/kernel.cubin": "cache/kernel.gemm.0123abcd",
        f"{DEEP_JIT}/kernel.cu": DEEP_JIT,
        f"{DEEP_JIT}/kernel.cubin": DEEP_JIT,
        f"{DEEP_JIT}/meta.json": DEEP_JIT,
        f"{DEEP_JIT}/.committed": DEEP_JIT,
        "tmp/7d444840-9dc0-11d1-b245-5ffdce74fad2/kernel.cu": None,
    },
    "tilelang": {
        f"{TILE}/executable.so": TILE,
        f"{TILE}/device_kernel.cu": TILE,
        f"{TILE}/params.json": TILE,
        f"{TILE}/manifest.json": TILE,
        "0.1.15/linux-x86_64/autotuner/k1/best.json": "0.1.15/linux-x86_64/autotuner/k1",
        f"0.1.15/cuda-binaries/{SHA}/kernel.cubin": f"0.1.15/cuda-binaries/{SHA}",
        f"0.1.15/cuda-binaries/{SHA}/metadata.json": f"0.1.15/cuda-binaries/{SHA}",
        f"{SHA}/kernel_lib.so": SHA,
        "0.1.15/linux-x86_64/.staging/x/device_kernel.cu": None,
    },
    "cute_dsl": {
        f"cute_dsl_{SHA}.mlir": f"cute_dsl_{SHA}.mlir",
        "pyir_class_facts/a.facts": "pyir_class_facts/a.facts",
        f"tmp.pid_7_ab/cute_dsl_{SHA}.mlir": None,
    },
    "flashinfer": {
        "0.7.4/90a/cached_ops/norm/build.ninja": "0.7.4/90a/cached_ops/norm",
        "0.7.4/90a/cached_ops/norm/.ninja_deps": "0.7.4/90a/cached_ops/norm",
        "0.7.4/90a/cached_ops/norm/.ninja_log": "0.7.4/90a/cached_ops/norm",
        "0.7.4/90a/cached_ops/norm/norm.cuda.o": "0.7.4/90a/cached_ops/norm",
        "0.7.4/90a/cached_ops/norm/norm.so": "0.7.4/90a/cached_ops/norm",
        "0.7.4/90a/cached_ops/page_90a_cute_dsl/page.o": "0.7.4/90a/cached_ops/page_90a_cute_dsl",
        "0.7.4/90a/cached_ops/page_90a_cute_dsl/meta.json": (
            "0.7.4/90a/cached_ops/page_90a_cute_dsl"
        ),
        "0.7.4/90a/generated/norm/norm.cu": "0.7.4/90a/generated/norm",
        "0.7.4/90a/1f2e/autotune_configs_dp0_rank1.json": (
            "0.7.4/90a/1f2e/autotune_configs_dp0_rank1.json"
        ),
        "0.7.4/90a/cached_ops/tmp/norm.lock": None,
        "0.7.4/90a/cached_ops/norm/.ninja_lock": None,
        "0.7.4/90a/flashinfer_jit.log": None,
    },
    "tvm_ffi": {
        "add_0123456789abcdef/main.cpp": "add_0123456789abcdef",
        "add_0123456789abcdef/build.ninja": "add_0123456789abcdef",
        "add_0123456789abcdef/cpp_0.o": "add_0123456789abcdef",
        "add_0123456789abcdef/add.so": "add_0123456789abcdef",
        "add_0123456789abcdef/.ninja_log": "add_0123456789abcdef",
        "add_0123456789abcdef/.ninja_deps": "add_0123456789abcdef",
        "add_0123456789abcdef/lock": None,
    },
}

# What a peer's disk was found to hold beside a cache; no kind ships it.
LITTER_TREE: dict[str, None] = dict.fromkeys(
    (
        "ext/lock",
        "x.lock",
        ".lock",
        ".ninja_lock",
        "tmp.pid_123_ab/block.cubin",
        ".staging_x/block.cubin",
        "lock_dir/x",
        "locks/x",
        "half.tmp",
        ".nfs000000000a3d1",
        ".mx-artifacts-1/x",
        "lost+found/x",
    )
)


def shared_library(payload: bytes = b"code") -> bytes:
    """Return an ELF file of one section as far as its tables go: they are last, as linkers do."""
    sections_at = 64 + len(payload)
    header = struct.pack(
        "<4s5B7xHHIQQQIHHHHHH",
        *(b"\x7fELF", 2, 1, 1, 0, 0, 3, 62, 1, 0, 0, sections_at, 0, 64, 56, 0, 64, 1, 0),
    )
    return header + payload + bytes(64)


def _content_of(path: str, siblings: Mapping[str, bytes]) -> bytes:
    """Return what a compiler could have written to `path` after its `siblings`."""
    name = path.rpartition("/")[2]
    if name.startswith("__grp__"):
        children = {child: f"/made/here/{path.split('/')[-2]}/{child}" for child in siblings}
        return json.dumps({"child_paths": children}).encode()
    if name == "manifest.json":
        files = {child: _promise(content) for child, content in siblings.items()}
        return json.dumps({"version": 1, "files": files}).encode()
    if name == "metadata.json":
        return json.dumps(_promise(siblings["kernel.cubin"])).encode()
    if name == "vllm_compile_cache.py":
        key = ((1, 8192), 0, "inductor_standalone")
        return repr({key: (ARTIFACT, f"/made/here/{ARTIFACT}")}).encode()
    if name.endswith(".json"):
        return json.dumps({"path": path}).encode()
    return shared_library() if name.endswith(".so") else path.encode()


def _promise(content: bytes) -> dict[str, int | str]:
    return {"size": len(content), "sha256": sha256(content).hexdigest()}


def make_tree(root: Path, paths: Mapping[str, str | None]) -> Path:
    """Write files at `paths` below `root`, each with what its name promises; return `root`."""
    made: dict[str, dict[str, bytes]] = {}
    for path in paths:
        directory, _, name = path.rpartition("/")
        siblings = made.setdefault(directory, {})
        content = _content_of(path, siblings)
        siblings[name] = content
        (root / directory).mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    return root


def expected_entries(kind: CacheKind) -> dict[str, str]:
    """Return the files of the kind's tree that are shipped, with their entries."""
    return {path: entry for path, entry in KIND_TREES[kind.name].items() if entry is not None}
