"""All cache kinds, by name and by number on the wire."""

from __future__ import annotations

from mx_artifacts.core.identity import SourceType
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.kinds import (
    cute_dsl,
    deep_gemm,
    flashinfer,
    inductor,
    tilelang,
    triton,
    tvm_ffi,
)
from mx_artifacts.kinds.base import CacheKind

_KINDS = (
    triton.KIND,
    inductor.KIND,
    deep_gemm.KIND,
    tilelang.KIND,
    cute_dsl.KIND,
    flashinfer.KIND,
    tvm_ffi.KIND,
)


def all_kinds() -> tuple[CacheKind, ...]:
    """Return every kind, in the order in which they are listed to users."""
    return _KINDS


def get_kind(name: str) -> CacheKind:
    """Return the kind of this name; case does not matter, nor `-` for `_`.

    Raises:
        ConfigurationError: there is none; lists those that there are.
    """
    wanted = name.strip().lower().replace("-", "_")
    for kind in all_kinds():
        if kind.name == wanted:
            return kind
    known = ", ".join(kind.name for kind in all_kinds())
    raise ConfigurationError(f"cache kind {name!r} is not known", hint=f"give one of {known}")


def kind_of(source_type: SourceType) -> CacheKind:
    """Return the kind with this number on the wire.

    Raises:
        ConfigurationError: sources of this type are no caches (weights, say).
    """
    for kind in all_kinds():
        if kind.source_type is source_type:
            return kind
    raise ConfigurationError(
        f"{source_type.name} is not a cache kind",
        hint=f"give one of {', '.join(kind.name for kind in all_kinds())}",
    )
