"""All cache kinds, by name and by number on the wire, including those of third parties.

A package adds kinds by entry points of the group `mx_artifacts.kinds`, each of which is a
`CacheKind`. Loading them runs code of that package. If one is broken, a warning names it and it is
left out.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Iterable

from mx_artifacts.core.identity import (
    KIND_PARAMETER,
    AnySourceType,
    SourceIdentity,
    SourceType,
    source_type_name,
)
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.kinds import deep_gemm, generic, tilelang, tvm_ffi
from mx_artifacts.kinds.base import CacheKind
from mx_artifacts.kinds.cute_dsl import kind as cute_dsl
from mx_artifacts.kinds.flashinfer import kind as flashinfer
from mx_artifacts.kinds.inductor import kind as inductor
from mx_artifacts.kinds.triton import kind as triton
from mx_artifacts.runtime.entry_points import entry_points

logger = logging.getLogger(__name__)

ENTRY_POINTS = "mx_artifacts.kinds"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_RESERVED = frozenset({"all", generic.KIND.name})  # `--kind all`

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
    """Return every kind that has a usual place, in the order in which they are listed to users."""
    return (*_KINDS, *_third_party_kinds())


def _named_kinds() -> tuple[CacheKind, ...]:
    return (*all_kinds(), generic.KIND)


@functools.cache
def _third_party_kinds() -> tuple[CacheKind, ...]:
    """Load them, once a process."""
    kinds: dict[str, CacheKind] = {}
    for point in entry_points(ENTRY_POINTS):
        try:
            kind = point.load()
            objection = _objection(kind, kinds)
        except Exception as error:  # whatever another package's code raises
            objection = repr(error)
        if objection:
            logger.warning("cache kind %s (%s) is left out: %s", point.name, point.value, objection)
        else:
            kinds[kind.name] = kind
    return tuple(kinds.values())


def _objection(kind: object, others: Iterable[str]) -> str:
    """Return why a third party's kind cannot be used, or ""."""
    if not isinstance(kind, CacheKind):
        return f"it is a {type(kind).__name__}, not a CacheKind"
    if not _NAME.fullmatch(kind.name):
        return f"its name {kind.name!r} should be lower-case letters, digits and _"
    if kind.name in _RESERVED or any(kind.name == k.name for k in _KINDS) or kind.name in others:
        return f"the name {kind.name} is taken"
    if not kind.shares_source_type:
        return "the wire has no number of its own for it; it must set shares_source_type"
    if not kind.roots or kind.roots[0].name:
        return "it has no primary root"
    return ""


def get_kind(name: str) -> CacheKind:
    """Return the kind of this name; case does not matter, nor `-` for `_`.

    Raises:
        ConfigurationError: there is none; lists those that there are.
    """
    wanted = name.strip().lower().replace("-", "_")
    # Built-in kinds first: nobody else's code runs for them.
    for kind in (*_KINDS, generic.KIND):
        if kind.name == wanted:
            return kind
    for kind in _third_party_kinds():
        if kind.name == wanted:
            return kind
    known = ", ".join(kind.name for kind in _named_kinds())
    raise ConfigurationError(f"cache kind {name!r} is not known", hint=f"use one of {known}")


def name_of_type(source_type: AnySourceType) -> str:
    """Return the name of the kind with this number on the wire; the wire's, if it is no cache.

    A number that has no name here is "type 10".
    """
    names = {int(kind.source_type): kind.name for kind in _KINDS}
    return names.get(int(source_type)) or source_type_name(source_type)


def kind_of(source_type: SourceType) -> CacheKind:
    """Return the kind that owns this number on the wire.

    Raises:
        ConfigurationError: sources of this type are no caches (weights, say).
    """
    for kind in _KINDS:
        if kind.source_type is source_type:
            return kind
    raise ConfigurationError(
        f"{source_type.name} is not a cache kind",
        hint=f"use one of {', '.join(kind.name for kind in _KINDS)}",
    )


def kind_name_of(identity: SourceIdentity) -> str:
    """Return the name of the kind that a source serves; its type's, if that is no cache."""
    if stated := identity.extra_parameters.get(KIND_PARAMETER):
        return stated
    return name_of_type(identity.mx_source_type)
