"""Identities that are nearly alike never match: the faults that users reported elsewhere.

Each one got a cache that was not for it: garbage output, crash loops, recompiles in silence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path

import pytest

from mx_artifacts.core.compatibility import identity_differences
from mx_artifacts.core.identity import SourceIdentity, compute_mx_source_id
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.identity.identify import probe_identity
from mx_artifacts.kinds.base import SIZES, CacheKind
from mx_artifacts.kinds.registry import all_kinds, get_kind
from mx_artifacts.node.installed import CannotProbe
from mx_artifacts.probes.base import ABSENT
from mx_artifacts.probes.engines import ENGINE_NAMES
from tests.support.made_up_node import Node, made_up_node

KINDS = pytest.mark.parametrize("kind", all_kinds(), ids=lambda kind: kind.name)


@pytest.fixture(autouse=True)
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    yield from made_up_node(monkeypatch)


def make(kind: CacheKind | str, **stated: str) -> SourceIdentity:
    kind = get_kind(kind) if isinstance(kind, str) else kind
    return probe_identity(kind, model_name="m", overrides=stated, env={}).identity


def source_id(kind: CacheKind | str, **stated: str) -> str:
    return compute_mx_source_id(make(kind, **stated))


@KINDS
def test_every_field_of_a_kind_distinguishes_two_nodes(kind: CacheKind) -> None:
    here = make(kind)
    names = (
        *(*kind.identity_fields, *kind.engine_fields),
        *(*kind.extra_parameters, *kind.strict_parameters),
    )
    for name in names:
        other = {"backend_framework": "vllm"}.get(name, "7" if name in SIZES else "another")
        there = make(kind, **{name: other})
        assert compute_mx_source_id(here) != compute_mx_source_id(there), name
        differing = {
            key.removeprefix("extra_parameters.") for key in identity_differences(here, there)
        }
        assert name in differing


# An RTX 3090's torch_compile_cache on Blackwell: vLLM's own key was the same, and it crash-looped.
# A Triton cache of sm_120 on sm_121: fluent garbage.
ARCHES = ("sm86", "sm90", "sm90a", "sm100", "sm100a", "sm103", "sm120", "sm121", "gfx942", "gfx950")


@KINDS
def test_no_arch_matches_another(kind: CacheKind) -> None:
    ids = {arch: source_id(kind, gpu_arch=arch) for arch in (*ARCHES, ABSENT)}
    for one, other in combinations(ids, 2):
        assert ids[one] != ids[other], (one, other)
    assert ids["sm90"] == source_id(kind, gpu_arch="SM_90")


@KINDS
def test_no_gpu_is_not_a_match_for_no_gpu(node: Node, kind: CacheKind) -> None:
    node.devices = {}
    with pytest.raises(ConfigurationError, match="gpu_arch: CUDA driver"):
        make(kind)


# Two vLLM workers that differ in --max-num-batched-tokens alone had one source id.
@KINDS
def test_engine_configurations_partition_the_pool(kind: CacheKind) -> None:
    ids = {source_id(kind, max_num_batched_tokens=n) for n in ("1024", "8192")}
    ids |= {source_id(kind, compile_config_digest=d) for d in ("d1", "d2")}
    ids |= {source_id(kind, spec_tokens="7"), source_id(kind)}
    assert len(ids) == 6


# tvm_ffi_version fell back to "unknown", on two nodes.
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("tvm_ffi", "tvm_ffi_version"),
        ("flashinfer", "tvm_ffi_version"),
        ("flashinfer", "flashinfer_version"),
        ("tilelang", "tilelang_version"),
        ("cute_dsl", "cutlass_dsl_version"),
    ],
)
def test_the_error_names_a_version_that_cannot_be_found_out(
    node: Node, kind: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(distribution: str) -> str:
        raise CannotProbe(f"the metadata of {distribution} is damaged")

    monkeypatch.setattr("mx_artifacts.probes.packages.distribution_version", damaged)
    with pytest.raises(ConfigurationError, match=f"{name}: the metadata of") as raised:
        make(kind, backend_framework="vllm", backend_framework_version="1")
    assert f"--identity {name}=VALUE" in raised.value.hint()
    for value in ("unknown", "Unknown", ""):
        with pytest.raises(
            ConfigurationError, match="an unknown value must not match another unknown value"
        ):
            make(kind, **{name: value})


# Host code of another ABI: cp311 on aarch64 with glibc 2.39, on x86_64 with cp312 and 2.35.
@pytest.mark.parametrize("kind", ["triton", "inductor", "tilelang", "tvm_ffi", "flashinfer"])
def test_host_code_does_not_cross_abis(kind: str) -> None:
    here = {"machine": "x86_64", "libc": "glibc-2.35"}
    there = {"machine": "aarch64", "libc": "glibc-2.39"}
    if "python_abi" in get_kind(kind).strict_parameters:
        here["python_abi"], there["python_abi"] = "cpython-312", "cpython-311"
    for name in here:
        assert source_id(kind, **here) != source_id(kind, **{**here, name: there[name]})


@KINDS
def test_the_device_that_will_run_counts(kind: CacheKind) -> None:
    ids = {
        compute_mx_source_id(
            probe_identity(kind, model_name="m", env={}, device_index=index).identity
        )
        for index in (0, 1)
    }
    assert len(ids) == 2


def test_engines_never_match_each_other() -> None:
    ids = {source_id("triton", backend_framework=name) for name in ENGINE_NAMES.values()}
    assert len(ids) == len(ENGINE_NAMES)


# --- kernels for the CPU --------------------------------------------------------------------------


def test_paths_and_threads_count_for_cpu_kernels_only(node: Node) -> None:
    for name in ("cpp_threads", "cpp_torch_path", "cpp_python_include", "cpp_compiler"):
        assert make("inductor").extra_parameters[name] == ABSENT
    on_cpu = make("inductor", gpu_arch="none").extra_parameters
    assert on_cpu["cpp_threads"] == "8"
    assert on_cpu["cpp_torch_path"] == "/site-packages/torch"
    assert on_cpu["cpp_compiler"] == "c++ (Debian) 12.2.0"
    assert (on_cpu["gpu_name"], on_cpu["gpu_sm_count"]) == (ABSENT, ABSENT)


def test_an_unknown_number_of_threads_is_refused(node: Node) -> None:
    node.threads = "many"
    with pytest.raises(ConfigurationError, match="cpp_threads: torch's number of threads is 'many"):
        make("inductor", gpu_arch="none")


# --- compilers ------------------------------------------------------------------------------------


def test_cuda_home_is_compared_as_it_is_spelled(node: Node) -> None:
    def home(**env: str) -> str:
        identity = probe_identity(get_kind("tvm_ffi"), model_name="m", env=env).identity
        return identity.extra_parameters["cuda_home"]

    assert home(CUDA_HOME="/usr/local/cuda") == "/usr/local/cuda"
    assert home(CUDA_PATH="/usr/local/cuda-13.0") == "/usr/local/cuda-13.0"
    assert home() == "/usr/local"  # nvcc is /usr/local/bin/nvcc


def test_nvcc_and_compiler_versions(node: Node) -> None:
    extras = make("flashinfer").extra_parameters
    assert extras["nvcc_version"] == "cuda_13.0.r13.0/compiler.36424714_0"
    assert extras["cxx_version"] == "c++ (Debian) 12.2.0"
    node.programs = {"ninja": "1.13.2"}
    bare_env = {"CUDA_HOME": "/nowhere"}
    bare = probe_identity(get_kind("flashinfer"), model_name="m", env=bare_env).identity
    assert bare.extra_parameters["nvcc_version"] == ABSENT
    assert bare.extra_parameters["cxx_version"] == ABSENT


def test_cute_dsl_libs_are_pinned_by_their_variable(node: Node) -> None:
    pinned = probe_identity(
        get_kind("cute_dsl"), model_name="m", env={"CUTE_DSL_LIBS": "/x/lib.so"}
    )
    assert pinned.identity.extra_parameters["cute_dsl_libs"] == "/x/lib.so"
    assert pinned.origins["cute_dsl_libs"] == "CUTE_DSL_LIBS"
    assert make("cute_dsl").extra_parameters["cute_dsl_libs"] == "/site-packages/cutlass"


# Each of these is in the command lines that ninja compares, or in the DSL's key.
@pytest.mark.parametrize(
    ("kind", "name", "variable"),
    [
        ("flashinfer", "flashinfer_settings", "FLASHINFER_EXTRA_CUDAFLAGS"),
        ("flashinfer", "flashinfer_settings", "CXX"),
        ("tvm_ffi", "tvm_ffi_settings", "CXX"),
        ("cute_dsl", "cute_dsl_settings", "CUTE_DSL_ENABLE_ASSERTIONS"),
    ],
)
def test_variables_that_change_what_is_compiled(
    node: Node, kind: str, name: str, variable: str
) -> None:
    node.programs["x"] = "c++ (Debian) 12.2.0"

    def value(**env: str) -> str:
        identity = probe_identity(get_kind(kind), model_name="m", env=env).identity
        return identity.extra_parameters[name]

    assert value() == value(**{variable: ""}) == value(CUTE_DSL_LOG_LEVEL="20") == ABSENT
    assert value(**{variable: "x"}) == f"{variable}=x"


@pytest.mark.parametrize(
    ("kind", "name", "variable", "gpu_arch", "listed", "value"),
    [
        ("flashinfer", "flashinfer_archs", "FLASHINFER_CUDA_ARCH_LIST", "sm90", "9.0a", "90a"),
        ("flashinfer", "flashinfer_archs", "FLASHINFER_CUDA_ARCH_LIST", "sm90a", "9.0", "90a"),
        ("flashinfer", "flashinfer_archs", "FLASHINFER_CUDA_ARCH_LIST", "sm120", "12.0", "120f"),
        ("flashinfer", "flashinfer_archs", "FLASHINFER_CUDA_ARCH_LIST", "sm89", "8.9", "89"),
        ("tvm_ffi", "tvm_ffi_archs", "TVM_FFI_CUDA_ARCH_LIST", "sm90", "9.0", "90"),
        ("cute_dsl", "cute_dsl_arch", "CUTE_DSL_ARCH", "sm90", "sm_90a", "90a"),
    ],
)
def test_a_list_of_device_features_is_not_a_difference(
    kind: str, name: str, variable: str, gpu_arch: str, listed: str, value: str
) -> None:
    def found(**env: str) -> str:
        stated = {"gpu_arch": gpu_arch}
        probed = probe_identity(get_kind(kind), model_name="m", overrides=stated, env=env)
        return probed.identity.extra_parameters[name]

    assert found() == found(**{variable: listed}) == value
    another = "sm_80" if variable == "CUTE_DSL_ARCH" else f"{listed} 8.0"
    assert found(**{variable: another}) != value
    with pytest.raises(ConfigurationError, match=f"{name}: {variable} has 'hopper'"):
        found(**{variable: "hopper"})
    other = probe_identity(get_kind(kind), model_name="m", overrides={"gpu_arch": "gfx942"}, env={})
    assert other.identity.extra_parameters[name] == "gfx942"


def test_the_autotune_root_needs_what_flashinfer_compares(node: Node) -> None:
    def extras(*stated_roots: str) -> Mapping[str, str]:
        probed = probe_identity(
            get_kind("flashinfer"), model_name="m", env={}, stated_roots=stated_roots
        )
        return probed.identity.extra_parameters

    assert not {"gpu_name", "cudnn_frontend_version"} & extras("").keys()
    assert extras("autotune")["gpu_name"] == "NVIDIA H100 80GB HBM3"
    assert extras("autotune")["cudnn_frontend_version"] == ABSENT


def test_the_include_path_counts_for_deep_gemm_2_only(node: Node, tmp_path: Path) -> None:
    node.site = tmp_path
    include = tmp_path / "deep_gemm" / "include"
    assert make("deep_gemm").extra_parameters["deep_gemm_include_dir"] == str(include)
    (include / "deep_jit").mkdir(parents=True)
    again = probe_identity(get_kind("deep_gemm"), model_name="m", env={"A": "1"}).identity
    assert again.extra_parameters["deep_gemm_include_dir"] == ABSENT
