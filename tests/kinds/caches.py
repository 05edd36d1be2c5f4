"""The real caches of the matrix: how each is filled, where it lies, what makes it.

To add one, write its program (tests/support/caches/__init__.py says what is expected of it) and
append a `Cache` here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.child import REPOSITORY

CUDA_HOME = "/usr/local/cuda"


@dataclass(frozen=True)
class Cache:
    """One real cache.

    Attributes:
        name: its rows in the table: "triton", "flashinfer/cute_dsl".
        kind: the product's kind.
        environment: whose Python runs program and product: "project" (the one that runs the
            tests), else a name of `tools/setup_env.py kinds` (.venvs/kinds-<name>).
        program: a file in tests/support/caches.
        variables: what the engine's process sets for a cache at a place.
        root: the kind's primary root at that place.
        more_roots: the kind's further roots at that place, for --root, by their names.
        stated: identity values that this machine has no device to probe for.
        needs: programs without which on PATH its rows are skipped, with that reason.
        synthetic: what is not real about it, for the table; "" for a real cache.
        separate_user: why the case "other user" cannot run, else "".
        small: whether it is light enough for `make test`, with what its program does on --small.
    """

    name: str
    kind: str
    environment: str
    program: str
    variables: Callable[[Path], Mapping[str, str]]
    root: Callable[[Path], Path] = lambda place: place
    more_roots: Callable[[Path], Mapping[str, Path]] = lambda place: {}
    stated: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    synthetic: str = ""
    separate_user: str = ""
    small: bool = False


H100 = {"gpu_arch": "sm90a", "gpu_name": "NVIDIA H100 80GB HBM3", "gpu_sm_count": "132"}


def _vllm(place: Path, **layout: str) -> dict[str, str]:
    return {
        "VLLM_CACHE_ROOT": str(place),
        # As for "inductor" below.
        "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
        "LIBCUDA_STUB": str(REPOSITORY / ".venvs" / "kinds-vllm" / "libcuda"),
        **layout,
    }


def _vllm_cache(name: str, variables: Callable[[Path], Mapping[str, str]]) -> Cache:
    return Cache(
        name=f"vllm/{name}",
        kind="inductor",
        environment="vllm",
        program="gen_vllm.py",
        variables=variables,
        root=lambda place: place / "torch_compile_cache",
        stated={"gpu_arch": "none", "gpu_name": "none", "gpu_sm_count": "none"},
        needs=("g++", "gcc"),
        synthetic="toy models on the CPU, so C++ instead of Triton; layout and loader are vLLM's",
    )


LIBCUDA_STUB = REPOSITORY / ".venvs" / "kinds-cuda" / "libcuda"
"""Where programs that link or load against the driver make themselves one; its path is in command
lines, so that it is the same for source and target, like a driver's."""


def _flashinfer(place: Path) -> dict[str, str]:
    return {
        "FLASHINFER_WORKSPACE_BASE": str(place),
        "FLASHINFER_CUDA_ARCH_LIST": "9.0a",
        "FLASHINFER_EXTRA_LDFLAGS": f"-L{LIBCUDA_STUB}",
        "FLASHINFER_LOGGING_LEVEL": "error",
        "CUTE_DSL_ARCH": "sm_90a",
        "CUDA_HOME": CUDA_HOME,
        "LIBCUDA_STUB": str(LIBCUDA_STUB),
    }


def _flashinfer_root(place: Path) -> Path:
    return place / ".cache" / "flashinfer"


TRITON_LIBCUDA_STUB = REPOSITORY / ".venvs" / "libcuda-triton"

CACHES = (
    Cache(
        name="triton",
        kind="triton",
        environment="project",
        program="gen_triton.py",
        variables=lambda place: {"TRITON_CACHE_DIR": str(place), "ARCH": "90"},
        stated={"gpu_arch": "sm90"},
        small=True,
    ),
    Cache(
        name="triton/extra",
        kind="triton",
        environment="project",
        program="gen_triton_extra.py",
        variables=lambda place: {
            "TRITON_CACHE_DIR": str(place),
            # Its directory is in the library's key.
            "TRITON_LIBCUDA_PATH": str(TRITON_LIBCUDA_STUB),
            "LIBCUDA_STUB": str(TRITON_LIBCUDA_STUB),
        },
        stated={"gpu_arch": "sm90"},
        needs=("gcc",),
        synthetic="the launcher is built against an empty driver; tuned times are made up",
    ),
    Cache(
        name="inductor",
        kind="inductor",
        environment="project",
        program="gen_inductor.py",
        variables=lambda place: {
            "TORCHINDUCTOR_CACHE_DIR": str(place),
            # 150 MB outside of the cache, compiled again on every node: see kinds/inductor/kind.py.
            "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
        },
        stated={"gpu_arch": "none", "gpu_name": "none", "gpu_sm_count": "none"},
        needs=("g++",),
        small=True,
    ),
    Cache(
        name="tilelang",
        kind="tilelang",
        environment="tilelang",
        program="gen_tilelang.py",
        variables=lambda place: {"TILELANG_CACHE_DIR": str(place), "ARCH": "sm_90a"},
        stated={"gpu_arch": "sm90a"},
        needs=("nvcc", "g++"),
    ),
    Cache(
        name="deep_gemm/deepjit",
        kind="deep_gemm",
        environment="cuda",
        program="gen_deepgemm.py",
        variables=lambda place: {"DG_JIT_CACHE_DIR": str(place)},
        stated=H100,
        needs=("nvcc", "g++"),
    ),
    Cache(
        name="deep_gemm/2.x",
        kind="deep_gemm",
        environment="cuda",
        program="gen_deepgemm_2.py",
        variables=lambda place: {"DG_JIT_CACHE_DIR": str(place)},
        stated=H100,
        needs=("nvcc",),
        synthetic="2.x does not start without a GPU: its rules, played by a program of ours",
    ),
    Cache(
        name="tvm_ffi",
        kind="tvm_ffi",
        environment="project",
        program="gen_tvm_ffi.py",
        variables=lambda place: {"TVM_FFI_CACHE_DIR": str(place)},
        stated={"gpu_arch": "none"},
        needs=("c++",),
        small=True,
    ),
    _vllm_cache("mega", _vllm),
    _vllm_cache("nonmega", lambda place: _vllm(place, VLLM_USE_MEGA_AOT_ARTIFACT="0")),
    _vllm_cache(
        "classic",
        lambda place: _vllm(
            place,
            VLLM_USE_AOT_COMPILE="0",
            # Here vLLM leaves Inductor's own directory in TMPDIR, and kernels for the CPU are in no
            # artifact. Below vLLM's root they are published with it.
            TORCHINDUCTOR_CACHE_DIR=str(place / "torch_compile_cache" / "inductor"),
        ),
    ),
    Cache(
        name="tvm_ffi/cuda",
        kind="tvm_ffi",
        environment="cuda",
        program="gen_tvm_ffi_cuda.py",
        variables=lambda place: {
            "TVM_FFI_CACHE_DIR": str(place),
            "TVM_FFI_CUDA_ARCH_LIST": "9.0",
            "CUDA_HOME": CUDA_HOME,
        },
        stated={"gpu_arch": "sm90"},
        needs=("nvcc", "c++"),
    ),
    Cache(
        name="flashinfer/nvcc",
        kind="flashinfer",
        environment="cuda",
        program="gen_flashinfer.py",
        variables=_flashinfer,
        root=_flashinfer_root,
        stated={"gpu_arch": "sm90"},
        needs=("nvcc", "c++", "gcc"),
    ),
    Cache(
        name="flashinfer/cute_dsl",
        kind="flashinfer",
        environment="cuda",
        program="gen_flashinfer_cutedsl.py",
        variables=_flashinfer,
        root=_flashinfer_root,
        stated={"gpu_arch": "sm90"},
        needs=("gcc",),
    ),
    Cache(
        name="flashinfer/autotune",
        kind="flashinfer",
        environment="cuda",
        program="gen_flashinfer_autotune.py",
        variables=lambda place: {**_flashinfer(place), "VLLM_CACHE_ROOT": str(place)},
        root=_flashinfer_root,
        more_roots=lambda place: {"autotune": place / "flashinfer_autotune_cache"},
        stated={
            "gpu_arch": "sm90",
            "gpu_name": "none",
            "tensor_parallel_size": "2",
            "pipeline_parallel_size": "1",
            "expert_parallel_size": "1",
        },
        needs=("gcc",),
        synthetic="the tuner wrote and loads the files, but measured nothing",
    ),
    Cache(
        name="cute_dsl",
        kind="cute_dsl",
        environment="cuda",
        program="gen_cutedsl.py",
        variables=lambda place: {
            "CUTE_DSL_CACHE_DIR": str(place),
            "CUTE_DSL_ARCH": "sm_90a",
            "LIBCUDA_STUB": str(LIBCUDA_STUB),
        },
        stated={"gpu_arch": "sm90"},
        needs=("gcc",),
    ),
)
