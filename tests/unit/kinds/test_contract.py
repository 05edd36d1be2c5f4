"""What every cache kind ships, in which units, and how kinds are found."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from mx_artifacts.bundle.tree import scan_tree
from mx_artifacts.core.identity import SourceIdentity, SourceType
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.identity.values import value_of
from mx_artifacts.kinds.base import CacheKind
from mx_artifacts.kinds.registry import all_kinds, get_kind, kind_of
from mx_artifacts.probes.common import COMMON_VALUES
from tests.support.kind_trees import KIND_TREES, LITTER_TREE, expected_entries, make_tree

KINDS = pytest.mark.parametrize("kind", all_kinds(), ids=lambda kind: kind.name)
FIELD_NAMES = {f.name for f in fields(SourceIdentity)}


def shipped_files(root: Path, kind: CacheKind) -> set[str]:
    return {m.path for m in scan_tree(root, kind.pack).members if not m.is_dir}


@KINDS
def test_ships_whole_entries_and_no_litter(kind: CacheKind, tmp_path: Path) -> None:
    make_tree(tmp_path, KIND_TREES[kind.name] | LITTER_TREE)
    assert shipped_files(tmp_path, kind) == expected_entries(kind).keys()


@KINDS
def test_entries(kind: CacheKind) -> None:
    expected = expected_entries(kind)
    assert {path: kind.pack.entry_of(path) for path in expected} == expected


@KINDS
def test_the_directory_of_an_entry_belongs_to_it(kind: CacheKind) -> None:
    entries = set(expected_entries(kind).values())
    assert {kind.pack.entry_of(entry) for entry in entries} == entries


@KINDS
def test_every_kind_keeps_a_file_that_only_sounds_like_a_lock(
    kind: CacheKind, tmp_path: Path
) -> None:
    make_tree(tmp_path, dict.fromkeys(("block.cubin", "a/lock.cubin", "a/clock", "unlock.so")))
    assert shipped_files(tmp_path, kind) == {"block.cubin", "a/lock.cubin", "a/clock", "unlock.so"}


@KINDS
def test_no_file_of_a_cache_is_taken_for_a_secret(kind: CacheKind, tmp_path: Path) -> None:
    named_alike = (
        "token.cubin",
        "id_rsa.so",
        "k/environment",
        "key.json",
        "pem.o",
        "git/x",
        "tokens",
    )
    make_tree(tmp_path, {**KIND_TREES[kind.name], **dict.fromkeys(named_alike)})
    reasons = [skip.reason for skip in scan_tree(tmp_path, kind.pack).skipped]
    assert [reason for reason in reasons if "secret" in reason] == []


@KINDS
def test_every_kind_leaves_secrets_out(kind: CacheKind, tmp_path: Path) -> None:
    secrets = (
        ".env",
        ".env.local",
        ".netrc",
        ".ssh/id_ed25519",
        ".git/config",
        "x/id_rsa",
        "token",
    )
    make_tree(tmp_path, {**KIND_TREES[kind.name], **dict.fromkeys(secrets)})
    assert shipped_files(tmp_path, kind) == expected_entries(kind).keys()
    reasons = [skip.reason for skip in scan_tree(tmp_path, kind.pack).skipped]
    assert sum("may hold a secret" in reason for reason in reasons) == len(secrets)


def test_only_ninja_kinds_keep_mtimes() -> None:
    assert {k.name for k in all_kinds() if k.pack.keep_mtimes} == {"flashinfer", "tvm_ffi"}


# --- registry ------------------------------------------------------------------------------------


def test_each_cache_type_of_the_wire_has_one_kind() -> None:
    caches = [t for t in SourceType if t.name.endswith("_CACHE")]
    assert sorted(kind.source_type for kind in all_kinds()) == sorted(caches)
    assert [kind_of(t).source_type for t in caches] == caches


@KINDS
def test_a_kind_is_found_by_its_name(kind: CacheKind) -> None:
    assert get_kind(kind.name) is kind
    assert get_kind(kind.name.upper().replace("_", "-")) is kind


def test_an_unknown_kind_is_refused_with_the_known_names() -> None:
    with pytest.raises(ConfigurationError, match="'tritn' is not known") as raised:
        get_kind("tritn")
    assert all(kind.name in raised.value.hint() for kind in all_kinds())
    with pytest.raises(ConfigurationError, match="WEIGHTS is not a cache kind"):
        kind_of(SourceType.WEIGHTS)


@KINDS
def test_declarations_hold_together(kind: CacheKind) -> None:
    required = (*kind.identity_fields, *kind.extra_parameters, *kind.strict_parameters)
    assert len(set(required)) == len(required)
    assert set(kind.identity_fields) | set(kind.engine_fields) <= FIELD_NAMES
    assert not FIELD_NAMES & {*kind.extra_parameters, *kind.strict_parameters}
    with_roots = {name for rule in kind.roots for name in rule.extra_identity}
    assert [name for name in (*required, *with_roots) if not value_of(kind, name).probe] == []
    assert kind.identity_values.keys() <= {*required, *with_roots} - COMMON_VALUES.keys()
    assert kind.may_be_absent <= {*required, *with_roots}
    assert kind.roots[0].name == ""
    assert not kind.roots[0].optional


# docs/protocol.md, "Identities that the reference's engine loaders make".
_ENGINE = {
    *("tensor_parallel_size", "pipeline_parallel_size", "expert_parallel_size", "dtype"),
    *("quantization", "revision", "backend_framework_version", "compile_config_digest"),
}
REFERENCE = {
    "inductor": (
        _ENGINE | {"torch_version", "cuda_version", "triton_version", "gpu_arch"},
        {"triton_key"},
    ),
    "triton": ({"cuda_version", "triton_version", "gpu_arch"}, {"triton_key"}),
    "deep_gemm": ({"cuda_version", "gpu_arch"}, {"deep_gemm_jit_key"}),
    "tilelang": ({"cuda_version", "gpu_arch"}, {"tilelang_version"}),
    "cute_dsl": ({"cuda_version", "gpu_arch"}, {"cutlass_dsl_version"}),
    "flashinfer": ({"torch_version", "cuda_version", "gpu_arch"}, {"flashinfer_version"}),
    "tvm_ffi": (_ENGINE | {"torch_version", "cuda_version", "gpu_arch"}, {"tvm_ffi_version"}),
}


@KINDS
def test_without_the_strict_parameters_the_fields_are_the_references(kind: CacheKind) -> None:
    named = {*kind.identity_fields, *kind.engine_fields} - {"backend_framework"}
    assert (named, set(kind.extra_parameters)) == REFERENCE[kind.name]
