"""Source identity: the values that must be equal on both nodes, and their hash (mx_source_id)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from functools import cached_property
from types import MappingProxyType
from typing import Any

from mx_artifacts.core.canonical import canonical_json
from mx_artifacts.core.digest import sha256_hex

SOURCE_ID_LENGTH = 16
"""Hex characters of an mx_source_id."""
KIND_PARAMETER = "mx_kind"
"""Extra parameter that names a cache kind for which the wire has no number (docs/adr/0013)."""


class BackendFramework(IntEnum):
    """The inference engine; numbers are the wire's."""

    UNKNOWN = 0
    VLLM = 1
    SGLANG = 2
    TRT_LLM = 3


class SourceType(IntEnum):
    """What a source serves; numbers are the wire's MxSourceType."""

    WEIGHTS = 0
    LORA = 1
    CUDA_GRAPH = 2
    TORCH_COMPILE_CACHE = 3
    TRITON_CACHE = 4
    DEEP_GEMM_CACHE = 5
    TILELANG_CACHE = 6
    CUTE_DSL_CACHE = 7
    FLASHINFER_CACHE = 8
    TVM_FFI_CACHE = 9


AnyBackendFramework = BackendFramework | int
"""An engine; a plain number where this version has no name for it."""
AnySourceType = SourceType | int
"""What a source serves; a plain number where this version has no name for it."""


def framework_of(number: int) -> AnyBackendFramework:
    """Return the engine with this number on the wire, or the number where it has no name here."""
    return BackendFramework(number) if number in _FRAMEWORK_NUMBERS else number


def source_type_of(number: int) -> AnySourceType:
    """Return the type with this number on the wire, or the number where it has no name here."""
    return SourceType(number) if number in _SOURCE_TYPE_NUMBERS else number


_FRAMEWORK_NUMBERS = frozenset(map(int, BackendFramework))
_SOURCE_TYPE_NUMBERS = frozenset(map(int, SourceType))


def framework_name(framework: AnyBackendFramework) -> str:
    """Return an engine's name in lower case, "" for none, "framework 7" for an unnamed number."""
    if isinstance(framework, BackendFramework):
        return framework.name.lower() if framework else ""
    return f"framework {framework}"


def source_type_name(source_type: AnySourceType) -> str:
    """Return the name on the wire in lower case, or "type 10" for a number without a name."""
    if isinstance(source_type, SourceType):
        return source_type.name.lower()
    return f"type {source_type}"


def _no_extras() -> Mapping[str, str]:
    return MappingProxyType({})


@dataclass(frozen=True)
class SourceIdentity:
    """The fields of the wire's SourceIdentity. Sizes count ranks; empty means not stated.

    A later release may publish types and engines that have no name here: those are numbers.
    """

    mx_version: str = ""
    mx_source_type: AnySourceType = SourceType.WEIGHTS
    model_name: str = ""
    backend_framework: AnyBackendFramework = BackendFramework.UNKNOWN
    tensor_parallel_size: int = 0
    pipeline_parallel_size: int = 0
    expert_parallel_size: int = 0
    dtype: str = ""
    quantization: str = ""
    extra_parameters: Mapping[str, str] = field(default_factory=_no_extras)
    revision: str = ""
    backend_framework_version: str = ""
    torch_version: str = ""
    cuda_version: str = ""
    triton_version: str = ""
    gpu_arch: str = ""
    compile_config_digest: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "extra_parameters", MappingProxyType(dict(self.extra_parameters)))

    def __hash__(self) -> int:
        return hash(self._mx_source_id)

    @cached_property
    def _mx_source_id(self) -> str:
        return _hash(self, escape_non_ascii=True)

    def with_fields(self, **changes: Any) -> SourceIdentity:
        """Return a copy with `changes`; TypeError for a field that does not exist."""
        return replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields in wire order, enums as numbers, extras as a plain dict."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values["mx_source_type"] = int(self.mx_source_type)
        values["backend_framework"] = int(self.backend_framework)
        values["extra_parameters"] = dict(self.extra_parameters)
        return values


# Fields that older peers do not know; they enter the hash only when stated, so that an identity
# without them hashes as it did before they existed (the reference's rule).
_ONLY_WHEN_STATED = (
    "backend_framework_version",
    "torch_version",
    "cuda_version",
    "triton_version",
    "gpu_arch",
    "compile_config_digest",
)


def lowered_extras(extras: Mapping[str, str]) -> dict[str, str]:
    """Lower-case keys and values; of keys that become equal the first in original order stays."""
    lowered: dict[str, str] = {}
    for key in sorted(extras):
        lowered.setdefault(key.lower(), extras[key].lower())
    return lowered


def compute_mx_source_id(identity: SourceIdentity) -> str:
    """Return the 16-hex-character mx_source_id, as the deployed Python peers compute it."""
    # Escaped (docs/adr/0011): the id that both ends of a mixed fleet compute must be the same.
    return identity._mx_source_id


def unescaped_mx_source_id(identity: SourceIdentity) -> str:
    """Return the id that a server computes which does not escape non-ASCII characters.

    It differs from `compute_mx_source_id` only where the identity has such characters.
    """
    return _hash(identity, escape_non_ascii=False)


def _hash(identity: SourceIdentity, *, escape_non_ascii: bool) -> str:
    values = identity.as_dict()
    for name, value in values.items():
        if isinstance(value, str):
            values[name] = value.lower()
    values["extra_parameters"] = lowered_extras(identity.extra_parameters)
    for name in _ONLY_WHEN_STATED:
        if not values[name]:
            del values[name]
    document = canonical_json(values, sort_keys=True, escape_non_ascii=escape_non_ascii)
    return sha256_hex(document)[:SOURCE_ID_LENGTH]
