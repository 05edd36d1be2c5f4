"""The mx_source_id of wire.md's table, and the rules behind it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mx_artifacts.core.canonical import canonical_json
from mx_artifacts.core.compatibility import accelerators_compatible, identity_differences
from mx_artifacts.core.identity import (
    BackendFramework,
    SourceIdentity,
    SourceType,
    compute_mx_source_id,
)

DEEPSEEK = SourceIdentity(
    mx_version="0.5.0",
    model_name="deepseek-ai/DeepSeek-V3",
    backend_framework=BackendFramework.VLLM,
    tensor_parallel_size=8,
    pipeline_parallel_size=1,
    dtype="bfloat16",
)
TRITON = SourceIdentity(
    mx_source_type=SourceType.TRITON_CACHE,
    model_name="org/mödel",
    backend_framework=BackendFramework.VLLM,
    cuda_version="13.0",
    triton_version="3.8.0",
    gpu_arch="sm90",
)


@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        (DEEPSEEK, "5a5f555570065064"),
        (DEEPSEEK.with_fields(revision="abc123def4567890"), "d0c184b2a9a34c82"),
        (DEEPSEEK.with_fields(extra_parameters={"Foo": "a", "foo": "b"}), "bf71fb9340cd940a"),
        (DEEPSEEK.with_fields(extra_parameters={"foo": "b", "Foo": "a"}), "bf71fb9340cd940a"),
        (TRITON, "3327fe19f6fa4e35"),
    ],
)
def test_ids_are_those_of_deployed_peers(identity: SourceIdentity, expected: str) -> None:
    assert compute_mx_source_id(identity) == expected


def test_case_does_not_matter() -> None:
    assert compute_mx_source_id(DEEPSEEK) == compute_mx_source_id(
        DEEPSEEK.with_fields(model_name="DEEPSEEK-AI/deepseek-v3", dtype="BFloat16")
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [("sm120", "sm121"), ("sm90", "sm90a"), ("sm100", "sm100a"), ("sm100", "sm103"),
     ("gfx942", "gfx950"), ("", "sm90")],
)  # fmt: skip
def test_near_miss_architectures_differ(one: str, other: str) -> None:
    assert compute_mx_source_id(TRITON.with_fields(gpu_arch=one)) != compute_mx_source_id(
        TRITON.with_fields(gpu_arch=other)
    )


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=6))
def test_extra_parameters_are_order_independent(extras: dict[str, str]) -> None:
    backwards = dict(reversed(list(extras.items())))
    assert compute_mx_source_id(TRITON.with_fields(extra_parameters=extras)) == (
        compute_mx_source_id(TRITON.with_fields(extra_parameters=backwards))
    )


def test_an_identity_cannot_be_changed_through_its_extras() -> None:
    extras = {"a": "1"}
    identity = TRITON.with_fields(extra_parameters=extras)
    extras["a"] = "2"
    assert identity.extra_parameters["a"] == "1"
    with pytest.raises(TypeError):
        identity.extra_parameters["a"] = "3"  # type: ignore[index]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=5), inner, max_size=4
    ),
    max_leaves=12,
)  # fmt: skip


@given(_JSON, st.booleans(), st.booleans())
def test_canonical_json_is_json_without_spaces(value: object, keys: bool, escape: bool) -> None:
    text = canonical_json(value, sort_keys=keys, escape_non_ascii=escape)
    assert json.loads(text) == value
    assert text == canonical_json(json.loads(text), sort_keys=keys, escape_non_ascii=escape)
    assert not escape or text.isascii()


def test_canonical_json_sorts_at_every_level_and_refuses_nan() -> None:
    value = {"b": {"z": 1, "a": 2}, "a": []}
    text = canonical_json(value, sort_keys=True, escape_non_ascii=False)
    assert text == b'{"a":[],"b":{"a":2,"z":1}}'
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json(float("nan"), sort_keys=True, escape_non_ascii=False)


@pytest.mark.parametrize(
    ("target", "source", "fits"),
    [("cuda", "cuda", True), ("CUDA", "cuda", True), ("cuda", "xpu", False),
     ("", "cuda", True), ("cuda", "", True), ("", "", True)],
)  # fmt: skip
def test_accelerators_compatible(target: str, source: str, fits: bool) -> None:
    assert accelerators_compatible(target, source) is fits


def test_differences_name_fields_and_extras() -> None:
    theirs = TRITON.with_fields(
        gpu_arch="sm120", model_name="ORG/MÖDEL", extra_parameters={"triton_key": "x"}
    )
    assert identity_differences(TRITON, theirs) == {
        "gpu_arch": ("sm90", "sm120"),
        "extra_parameters.triton_key": ("", "x"),
    }


def test_differences_name_enums() -> None:
    ours = TRITON.with_fields(backend_framework=BackendFramework.VLLM)
    theirs = TRITON.with_fields(
        backend_framework=BackendFramework.UNKNOWN, mx_source_type=SourceType.TILELANG_CACHE
    )
    assert identity_differences(ours, theirs) == {
        "backend_framework": ("vllm", ""),
        "mx_source_type": ("triton_cache", "tilelang_cache"),
    }
