"""The reference's profile: the identity that its engine loaders make, and what that leaves out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from mx_artifacts.core.identity import BackendFramework, SourceIdentity, compute_mx_source_id
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.identity.identify import ProbedIdentity, Profile, probe_identity
from mx_artifacts.kinds.base import CacheKind
from mx_artifacts.kinds.registry import all_kinds, get_kind
from mx_artifacts.kinds.triton.compiler import TritonBuild
from mx_artifacts.node.installed import TorchBuild
from tests.support.made_up_node import Node, made_up_node

KINDS = pytest.mark.parametrize("kind", all_kinds(), ids=lambda kind: kind.name)
ENGINE: dict[str, Any] = {
    "tensor_parallel_size": "2",
    "pipeline_parallel_size": "1",
    "expert_parallel_size": "1",
    "dtype": "bfloat16",
}


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    for node in made_up_node(monkeypatch):
        node.versions["vllm"] = "0.33.0"
        yield node


def make(
    kind: str,
    profile: Profile = Profile.REFERENCE,
    env: Mapping[str, str] | None = None,
    **overrides: str,
) -> ProbedIdentity:
    return probe_identity(
        get_kind(kind),
        model_name="org/mödel",
        overrides=overrides,
        env=env or {},
        profile=profile,
    )


def stated_fields(identity: SourceIdentity) -> set[str]:
    values = identity.as_dict()
    always = {"mx_source_type", "model_name", "backend_framework", "extra_parameters"}
    return {name for name, value in values.items() if value and name not in always}


@KINDS
def test_only_fields_of_the_table_are_in_it(node: Node, kind: CacheKind) -> None:
    engine: dict[str, Any] = ENGINE if kind.engine_fields else {}
    probed = make(
        kind.name,
        spec_tokens="7",
        machine="x86_64",
        dtype="bfloat16",
        **{name: value for name, value in engine.items() if name != "dtype"},
    )
    identity = probed.identity
    assert stated_fields(identity) <= {*kind.identity_fields, *kind.engine_fields}
    assert identity.extra_parameters.keys() <= set(kind.extra_parameters)
    assert {*kind.strict_parameters, "spec_tokens"} <= set(probed.unchecked)
    assert ("dtype" in probed.unchecked) == (not kind.engine_fields)
    strict = make(kind.name, Profile.STRICT, **engine)
    assert strict.unchecked == ()
    assert compute_mx_source_id(strict.identity) != compute_mx_source_id(identity)


def test_the_id_is_the_one_that_the_reference_computes(node: Node) -> None:
    node.torch = TorchBuild("2.14.1", "cuda", "13.0")
    node.triton = TritonBuild("3.8.0", "k")  # a version in which the reference finds no key
    probed = make("triton")
    assert compute_mx_source_id(probed.identity) == "3327fe19f6fa4e35"
    assert "triton_key" in probed.unchecked


def test_extra_parameters_that_cannot_be_found_are_left_out_and_named(node: Node) -> None:
    del node.versions["tilelang"]
    probed = make("tilelang")
    assert probed.identity.extra_parameters == {}
    assert probed.unchecked == ("machine", "libc", "tilelang_version")
    with pytest.raises(ConfigurationError, match="tilelang_version"):
        make("tilelang", Profile.STRICT)


def test_deep_gemms_key_is_the_one_of_its_first_generation(node: Node) -> None:
    assert make("deep_gemm").identity.extra_parameters == {}
    node.deep_gemm_1_key = "a1b2c3d4e5f6"
    assert make("deep_gemm", env={"A": "1"}).identity.extra_parameters == {
        "deep_gemm_jit_key": "a1b2c3d4e5f6"
    }


def test_an_unknown_field_is_an_error_here_too(node: Node) -> None:
    node.devices = {}
    with pytest.raises(ConfigurationError, match="gpu_arch: CUDA driver"):
        make("triton")


def test_values_of_absent_components_are_empty_as_in_the_reference(node: Node) -> None:
    node.torch = TorchBuild("2.13.0+cpu", "cpu", "")
    identity = make("inductor", **ENGINE).identity
    assert (identity.cuda_version, identity.gpu_arch) == ("", "")
    node.torch = TorchBuild("2.13.0+rocm6.4", "rocm", "hip-6.4")
    assert make("triton", gpu_arch="gfx942").identity.cuda_version == ""


def test_the_engine_and_what_its_loader_always_knows_must_be_known(node: Node) -> None:
    with pytest.raises(
        ConfigurationError, match="tensor_parallel_size: the engine's own"
    ) as raised:
        make("inductor")
    assert "--identity dtype=VALUE" in raised.value.hint()
    del node.versions["vllm"]
    with pytest.raises(ConfigurationError, match="backend_framework: no engine is installed"):
        make("triton", env={"A": "2"})
    sglang = make("triton", backend_framework="sglang").identity
    assert sglang.backend_framework is BackendFramework.SGLANG
