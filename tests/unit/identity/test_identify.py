"""Identities that are probed on this node or stated by the user."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from mx_artifacts.core.identity import BackendFramework, SourceIdentity, compute_mx_source_id
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.identity import identify as identity_module
from mx_artifacts.identity.identify import STATED, ProbedIdentity, probe_identity
from mx_artifacts.kinds import deep_gemm
from mx_artifacts.kinds.base import CacheKind
from mx_artifacts.kinds.registry import all_kinds, get_kind
from mx_artifacts.node import installed
from mx_artifacts.node.installed import CannotProbe, ComponentAbsent, TorchBuild
from mx_artifacts.probes import host
from mx_artifacts.probes.base import ABSENT
from tests.support.made_up_node import Node, made_up_node

KINDS = pytest.mark.parametrize("kind", all_kinds(), ids=lambda kind: kind.name)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    yield from made_up_node(monkeypatch)


def make(
    kind: str = "triton",
    env: Mapping[str, str] | None = None,
    device_index: int = 0,
    **overrides: str,
) -> ProbedIdentity:
    return probe_identity(
        get_kind(kind),
        model_name="org/model",
        overrides=overrides,
        env=env or {},
        device_index=device_index,
    )


def source_id(*args: Any, **kwargs: Any) -> str:
    return compute_mx_source_id(make(*args, **kwargs).identity)


# --- what is probed ------------------------------------------------------------------------------


@KINDS
def test_everything_a_kind_needs_is_probed_and_says_where_from(node: Node, kind: CacheKind) -> None:
    probed = make(kind.name)
    required = {*kind.identity_fields, *kind.extra_parameters, *kind.strict_parameters}
    assert probed.origins.keys() == required
    assert all(origin.startswith("probed: ") for origin in probed.origins.values())
    assert probed.identity.mx_source_type is kind.source_type
    assert probed.identity.extra_parameters.keys() == required - set(kind.identity_fields)
    assert all(probed.identity.extra_parameters.values())
    assert probed.accelerator == "cuda"


def test_the_arch_is_that_of_the_requested_device(node: Node) -> None:
    assert make(device_index=0).identity.gpu_arch == "sm90"
    assert make(device_index=1).identity.gpu_arch == "sm120"


def test_engine_and_its_version(node: Node) -> None:
    assert make("inductor").identity.backend_framework is BackendFramework.UNKNOWN
    assert make("inductor").identity.backend_framework_version == ABSENT
    node.versions["sglang"] = "0.5.3"
    stated = make("inductor", env={"A": "b"}).identity
    assert stated.backend_framework is BackendFramework.SGLANG
    assert stated.backend_framework_version == "0.5.3"


def test_with_two_installed_engines_one_must_be_named(node: Node) -> None:
    node.versions |= {"sglang": "0.5.3", "vllm": "0.33.0"}
    with pytest.raises(ConfigurationError, match="backend_framework: vllm and sglang are both"):
        make("triton")
    chosen = make("inductor", backend_framework="vllm").identity
    assert (chosen.backend_framework, chosen.backend_framework_version) == (
        BackendFramework.VLLM,
        "0.33.0",
    )


def test_engine_settings_come_from_their_variables_where_the_kind_has_them(node: Node) -> None:
    env = {"MX_MODEL_REVISION": "r1", "MX_ARTIFACT_COMPILE_CONFIG_DIGEST": "d1"}
    probed = make("inductor", env)
    assert (probed.identity.revision, probed.identity.compile_config_digest) == ("r1", "d1")
    assert probed.origins["revision"] == "MX_MODEL_REVISION"
    assert make("inductor", env, revision="r2").identity.revision == "r2"
    assert make("triton", env).identity.revision == ""


# --- unknown is not empty ------------------------------------------------------------------------


def test_without_a_gpu_the_arch_must_be_stated(node: Node) -> None:
    node.devices = {}
    with pytest.raises(
        ConfigurationError, match=r"gpu_arch: CUDA driver, device 0: cuInit"
    ) as raised:
        make("triton")
    assert "--identity gpu_arch=VALUE" in raised.value.hint()
    assert make("triton", gpu_arch="sm_90").identity.gpu_arch == "sm90"


def test_all_unknown_fields_are_named_at_once(node: Node) -> None:
    node.devices, node.versions = {}, {}
    with pytest.raises(ConfigurationError) as raised:
        make("tilelang")
    assert "tilelang_version: tilelang is not installed" in str(raised.value)
    assert raised.value.hint().endswith(
        "--identity gpu_arch=VALUE --identity tilelang_version=VALUE"
    )


@pytest.mark.parametrize("version", ["", "0+unknown", "unknown", "0.0.0"])
def test_a_version_that_says_nothing_is_unknown(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: version)
    with pytest.raises(CannotProbe, match="states the version"):
        installed.distribution_version("tilelang")


def test_a_probe_that_breaks_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> str:
        raise RuntimeError("no such luck")

    monkeypatch.setattr(metadata, "version", broken)
    with pytest.raises(CannotProbe, match="no such luck") as raised:
        installed.distribution_version("tilelang")
    assert not isinstance(raised.value, ComponentAbsent)


def test_an_empty_answer_is_unknown(node: Node) -> None:
    node.devices = {0: {"arch": "", "name": "", "sm_count": 0}}
    with pytest.raises(ConfigurationError, match="gpu_arch: CUDA driver, device 0 is empty"):
        make("triton")


@pytest.mark.parametrize("value", ["", "  ", "unknown", "Unknown"])
def test_unknown_cannot_be_stated(node: Node, value: str) -> None:
    with pytest.raises(ConfigurationError, match="gpu_arch is "):
        make("triton", gpu_arch=value)


def test_a_model_without_a_name_is_refused(node: Node) -> None:
    with pytest.raises(ConfigurationError, match="model's name is ' '"):
        probe_identity(get_kind("triton"), model_name=" ", env={})


@pytest.mark.parametrize("name", ["x" * 1025, "a\nb", "a\x00b", "a\x7f", "\udcff\udcfe"])
def test_a_model_name_that_others_cannot_read_is_refused(node: Node, name: str) -> None:
    with pytest.raises(ConfigurationError, match="model's name is") as caught:
        probe_identity(get_kind("triton"), model_name=name, env={})
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("stated", [{"revision": "\udcff"}, {"extra\udcff": "1"}])
def test_identity_values_that_are_not_utf_8_are_refused(node: Node, stated: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="UTF-8"):
        make("triton", **stated)


@pytest.mark.parametrize(
    "stated",
    [
        {"tensor_parallel_size": "abc"},
        {"backend_framework": "mlc"},
        {"gpu_arch": "unknown"},
        {"extra": "1", "EXTRA": "1"},
        {"model_name": "m"},
        {"": "1"},
    ],
)
def test_a_refused_identity_value_has_a_next_step(node: Node, stated: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make("triton", **stated)
    assert caught.value.hint()


# --- a CPU-only torch ----------------------------------------------------------------------------


def test_a_cpu_only_torch_has_no_gpu_code_in_inductors_cache(node: Node) -> None:
    node.torch = TorchBuild("2.13.0+cpu", "cpu", "")  # whatever GPU is there
    probed = make("inductor")
    assert (probed.identity.cuda_version, probed.identity.gpu_arch) == (ABSENT, ABSENT)
    assert probed.identity.extra_parameters["gpu_name"] == ABSENT
    assert {"cpu_model", "cpu_flags"} <= probed.identity.extra_parameters.keys()
    assert probed.accelerator == "cpu"


def test_a_cuda_torch_without_a_gpu_does_not_tell(node: Node) -> None:
    node.devices = {}
    with pytest.raises(ConfigurationError, match="gpu_arch"):
        make("inductor")


def test_inductor_without_triton(node: Node) -> None:
    with_triton = source_id("inductor")
    node.triton = None
    identity_module._probe_once.cache_clear()
    identity = make("inductor").identity
    assert (identity.triton_version, identity.extra_parameters["triton_key"]) == (ABSENT, ABSENT)
    assert compute_mx_source_id(identity) != with_triton
    with pytest.raises(ConfigurationError, match="triton_version: triton is not installed"):
        make("triton")


def test_aten_cpu_capability_partitions_inductors_caches(node: Node) -> None:
    ids = {source_id("inductor", {"ATEN_CPU_CAPABILITY": c}) for c in ("", "default", "avx2")}
    assert len(ids) == 3


@pytest.mark.parametrize(
    ("arch", "family"), [("sm90a", "cuda"), ("gfx942", "rocm"), ("none", "cpu"), ("pvc", "cuda")]
)
def test_the_accelerator_follows_the_arch_then_torch(node: Node, arch: str, family: str) -> None:
    assert make(gpu_arch=arch).accelerator == family


# --- matching ------------------------------------------------------------------------------------

NEAR_MISSES = (
    *("sm80", "sm86", "sm89", "sm90", "sm90a", "sm100", "sm100a", "sm100f", "sm101", "sm103"),
    *("sm103a", "sm120", "sm120a", "sm121", "gfx942", "gfx950", "gfx90a", "none"),
)


def test_near_miss_arches_never_match(node: Node) -> None:
    ids = [source_id(gpu_arch=arch) for arch in NEAR_MISSES]
    assert len(set(ids)) == len(NEAR_MISSES)


HOST_FIELDS = {
    "machine": "aarch64",
    "python_abi": "cpython-312-x86_64-linux-gnu",
    "libc": "glibc-2.35",
}


@pytest.mark.parametrize(
    ("kind", "differs"),
    [
        *(("triton", name) for name in ("machine", "python_abi", "libc")),
        *(("inductor", name) for name in ("machine", "python_abi", "libc")),
        *(
            (kind, name)
            for kind in ("tilelang", "flashinfer", "tvm_ffi")
            for name in ("machine", "libc")
        ),
        ("inductor", "cpu_model"),
        ("inductor", "cpu_flags"),
        ("inductor", "gpu_name"),
        ("inductor", "gpu_sm_count"),
        ("inductor", "cpp_threads"),
        ("deep_gemm", "gpu_name"),
        ("deep_gemm", "gpu_sm_count"),
        ("deep_gemm", "nvcc_version"),
        ("deep_gemm", "deep_gemm_include_dir"),
        ("cute_dsl", "cute_dsl_libs"),
        ("cute_dsl", "site_packages"),
        *(
            (kind, name)
            for kind in ("flashinfer", "tvm_ffi")
            for name in ("nvcc_version", "cxx_version", "cuda_home", "tvm_ffi_path")
        ),
        ("flashinfer", "flashinfer_path"),
        ("flashinfer", "ninja_version"),
        ("tvm_ffi", "ninja_version"),
    ],
)
def test_another_host_never_matches_host_code(node: Node, kind: str, differs: str) -> None:
    here = make(kind).identity
    assert differs in here.extra_parameters
    stated: dict[str, Any] = {differs: HOST_FIELDS.get(differs, "another")}
    there = make(kind, **stated).identity
    assert compute_mx_source_id(here) != compute_mx_source_id(there)


def test_free_parameters_partition_the_pool_in_any_order(node: Node) -> None:
    free = {"spec_tokens": "7", "max_num_batched_tokens": "8192", "Gpu_Arch": "sm90"}
    ids = {
        compute_mx_source_id(
            probe_identity(get_kind("triton"), model_name="m", overrides=dict(o), env={}).identity
        )
        for o in itertools.permutations(free.items())
    }
    assert len(ids) == 1
    assert source_id(spec_tokens="7") != source_id(spec_tokens="8") != source_id()


def test_stated_values_win_and_are_shown_as_stated(node: Node) -> None:
    probed = make(
        "inductor", tensor_parallel_size="8", triton_key="k", torch_version="9.9", mine="x"
    )
    identity = probed.identity
    assert (identity.tensor_parallel_size, identity.torch_version) == (8, "9.9")
    assert (identity.extra_parameters["triton_key"], identity.extra_parameters["mine"]) == (
        "k",
        "x",
    )
    stated = {name for name, origin in probed.origins.items() if origin == STATED}
    assert stated == {"tensor_parallel_size", "triton_key", "torch_version", "mine"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tensor_parallel_size", "eight"),
        ("tensor_parallel_size", "-1"),
        ("pipeline_parallel_size", str(2**32)),
        ("backend_framework", "vlllm"),
        ("model_name", "x"),
        ("mx_source_type", "4"),
        ("extra_parameters", "a=b"),
        ("  ", "x"),
    ],
)
def test_overrides_that_make_no_sense(node: Node, name: str, value: str) -> None:
    stated: dict[str, Any] = {name: value}
    with pytest.raises(ConfigurationError):
        make("triton", **stated)


def test_a_name_stated_twice_is_refused(node: Node) -> None:
    with pytest.raises(ConfigurationError, match="foo is stated twice"):
        make("triton", Foo="a", foo="b")


def test_made_once_a_process_for_equal_arguments(node: Node) -> None:
    first = make("flashinfer", a="1", b="2")
    asked = node.probes
    second = make("flashinfer", b="2", a="1")
    assert second is first
    assert node.probes == asked
    assert make("flashinfer", a="2").identity != first.identity


# --- how facts are read --------------------------------------------------------------------------


@pytest.mark.process
def test_a_failed_question_is_asked_again(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\necho broken >&2; exit 3\n")
    tool.chmod(0o755)
    with pytest.raises(CannotProbe, match="broken"):
        installed.run_program((str(tool),), {}, timeout_seconds=30)
    tool.write_text("#!/bin/sh\necho 1.2.3\n")
    assert installed.run_program((str(tool),), {}, timeout_seconds=30) == "1.2.3"


X86_CPU = (
    "processor\t: {n}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n"
    "model name\t: Intel(R) Xeon(R)\nstepping\t: 8\ncpu MHz\t\t: {mhz}\n"
    "flags\t\t: fpu sse2 avx512f avx2 amx_bf16 constant_tsc {more}\n\n"
)
ARM_CPU = (
    "processor\t: {n}\nFeatures\t: fp asimd sve2 i8mm\nCPU implementer\t: 0x41\n"
    "CPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: 0xd4f\nCPU revision\t: 0\n\n"
)


def test_cpu_facts_of_x86() -> None:
    text = X86_CPU.format(n=0, mhz=2000.1, more="gfni") + X86_CPU.format(n=1, mhz=3100.7, more="ht")
    assert host.cpu_model(text) == (
        "vendor_id GenuineIntel, cpu family 6, model 143, stepping 8, model name Intel(R) Xeon(R)"
    )
    assert host.cpu_flags(text) == "amx_bf16 avx2 avx512f sse2"


def test_cpu_facts_of_arm() -> None:
    text = ARM_CPU.format(n=0) + ARM_CPU.format(n=1)
    assert "CPU part 0xd4f" in host.cpu_model(text)
    assert host.cpu_flags(text) == "asimd fp i8mm sve2"


def test_deep_gemm_key_follows_the_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header = tmp_path / "deep_gemm_fake" / "include" / "deep_gemm" / "impl.cuh"
    header.parent.mkdir(parents=True)
    monkeypatch.setattr(deep_gemm, "package_directory", lambda module: tmp_path / "deep_gemm_fake")
    with pytest.raises(ComponentAbsent):
        deep_gemm.deep_gemm_key()
    header.write_text("one")
    first = deep_gemm.deep_gemm_key()
    header.write_text("two")
    assert deep_gemm.deep_gemm_key() != first


def test_identities_compare_as_values(node: Node) -> None:
    assert isinstance(make().identity, SourceIdentity)
    assert hash(make()) == hash(make())
