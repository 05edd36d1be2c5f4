"""The identity of a cache on this node: probed where it can be, stated where the user says so.

Unknown is not empty (docs/adr/0007): a field that can neither be probed nor was stated is an error
that names it. A component that is known not to be there has the value "none" where the kind allows
it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from mx_artifacts import settings
from mx_artifacts.core.identity import SourceIdentity
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.kinds.base import ABSENT, CacheKind, Environment
from mx_artifacts.kinds.installed import CannotProbe, ComponentAbsent, torch_build
from mx_artifacts.kinds.probes import NAME_OF_FRAMEWORK, Fact, ProbeContext, probe

STATED = "stated"
_UINT32_MAX = 2**32 - 1
_SIZES = ("tensor_parallel_size", "pipeline_parallel_size", "expert_parallel_size")
_NOT_FOR_USERS = {
    "model_name": "state the model itself",
    "mx_source_type": "the cache kind decides it",
    "extra_parameters": "state each extra parameter by its own name",
}
_FIELD_NAMES = frozenset(f.name for f in fields(SourceIdentity))
_SETTING_OF_FIELD = {
    "revision": settings.MODEL_REVISION,
    "compile_config_digest": settings.COMPILE_CONFIG_DIGEST,
}


@dataclass(frozen=True)
class ProbedIdentity:
    """An identity, where each of its values comes from, and the accelerator family it is for.

    `origins` maps the name of a field or extra parameter to "stated", "probed: …" or the variable
    that has it. `accelerator` is "cuda", "rocm", "xpu", "cpu", or "" where it cannot be told.
    """

    identity: SourceIdentity
    origins: Mapping[str, str] = field(hash=False)
    accelerator: str


def probe_identity(
    kind: CacheKind,
    *,
    model_name: str,
    overrides: Mapping[str, str] = MappingProxyType({}),
    env: Environment | None = None,
    device_index: int = 0,
) -> ProbedIdentity:
    """Return the identity of `kind`'s cache of `model_name` on this node.

    Made once a process for equal arguments, so that two moments never give two identities.

    Args:
        overrides: values by field or extra parameter; they win over what would be probed. A name
            that the kind does not know is a further extra parameter, which partitions the pool.
        env: the environment whose variables count; default: the process's.
        device_index: the GPU that will run, as CUDA numbers it in this environment.

    Raises:
        ConfigurationError: fields that are neither probed nor stated, all of them named with what
            was tried; or an override that makes no sense.
    """
    if not model_name.strip():
        raise ConfigurationError("the model has no name", hint="state one with --model")
    # Overrides are read before the cache, whose key must not depend on their order.
    stated = tuple(sorted(_read_overrides(overrides).items()))
    env = settings.environment() if env is None else env
    return _probe_once(kind, model_name.strip(), stated, tuple(sorted(env.items())), device_index)


@functools.lru_cache(maxsize=64)
def _probe_once(
    kind: CacheKind,
    model_name: str,
    stated: tuple[tuple[str, str], ...],
    env: tuple[tuple[str, str], ...],
    device_index: int,
) -> ProbedIdentity:
    facts = {name: Fact(value, STATED) for name, value in stated}
    facts |= _engine_settings(kind, facts, dict(env))
    facts |= _probe_missing(kind, facts, dict(env), device_index)
    values: dict[str, Any] = {
        name: _field_value(name, fact.value) for name, fact in facts.items() if name in _FIELD_NAMES
    }
    identity = SourceIdentity(
        mx_source_type=kind.source_type,
        model_name=model_name,
        extra_parameters={n: f.value for n, f in sorted(facts.items()) if n not in _FIELD_NAMES},
        **values,
    )
    origins = MappingProxyType({name: fact.origin for name, fact in sorted(facts.items())})
    return ProbedIdentity(identity, origins, _accelerator(identity.gpu_arch))


def _engine_settings(
    kind: CacheKind, facts: Mapping[str, Fact], env: Environment
) -> dict[str, Fact]:
    """Return what variables of the environment state about the engine."""
    return {
        name: Fact(value, setting.name)
        for name, setting in _SETTING_OF_FIELD.items()
        if name in kind.engine_fields and name not in facts and (value := setting.read(env=env))
    }


def _probe_missing(
    kind: CacheKind, facts: Mapping[str, Fact], env: Environment, device_index: int
) -> dict[str, Fact]:
    names = (*kind.identity_fields, *kind.extra_parameters, *kind.strict_parameters)
    cpu_build_has_no_gpu_code = "gpu_arch" in kind.may_be_absent
    found: dict[str, Fact] = {}
    unknown: dict[str, str] = {}
    for name in (n for n in names if n not in facts):
        framework = {**facts, **found}.get("backend_framework", Fact("", "")).value
        context = ProbeContext(env, device_index, framework, cpu_build_has_no_gpu_code)
        try:
            found[name] = probe(name, context)
        except CannotProbe as error:
            if isinstance(error, ComponentAbsent) and name in kind.may_be_absent:
                found[name] = Fact(ABSENT, f"probed: {error}")
            else:
                unknown[name] = str(error)
    if unknown:
        raise ConfigurationError(
            f"the identity of the {kind.name} cache cannot be determined: "
            + "; ".join(f"{name}: {tried}" for name, tried in unknown.items()),
            hint="state what it is: " + " ".join(f"--identity {n}=VALUE" for n in unknown),
        )
    return found


def _accelerator(gpu_arch: str) -> str:
    for prefix, family in (("sm", "cuda"), ("gfx", "rocm"), (ABSENT, "cpu")):
        if gpu_arch.lower().startswith(prefix):
            return family
    try:
        return torch_build().accelerator
    except CannotProbe:
        return ""


# --- what the user states ------------------------------------------------------------------------


def _read_overrides(overrides: Mapping[str, str]) -> dict[str, str]:
    stated: dict[str, str] = {}
    for key, value in overrides.items():
        name = key.strip().lower()
        if name in _NOT_FOR_USERS or not name:
            raise ConfigurationError(
                f"{key!r} cannot be stated as an identity value", hint=_NOT_FOR_USERS.get(name)
            )
        if name in stated:
            raise ConfigurationError(f"identity value {name} is stated twice")
        stated[name] = _read_value(name, value.strip())
    return stated


def _read_value(name: str, value: str) -> str:
    """Check a stated value; return it in the form in which equal things are equal."""
    if not value or value.lower() == "unknown":
        raise ConfigurationError(
            f"identity value {name} is {value!r}, but unknown must not match unknown",
            hint=f"state what it is, {ABSENT!r} if it is not there, or leave {name} out",
        )
    if name in _SIZES and not (re.fullmatch(r"[0-9]{1,10}", value) and int(value) <= _UINT32_MAX):
        raise ConfigurationError(
            f"identity value {name} is {value!r}, but should be a whole number"
        )
    if name == "backend_framework":
        known = NAME_OF_FRAMEWORK.values()
        value = value.lower().replace("-", "_")
        if value not in known:
            raise ConfigurationError(
                f"identity value {name} is {value!r}, but should be one of {', '.join(known)}"
            )
    if name == "gpu_arch":
        # As compilers write it (sm_90), and as it is compared (sm90). A letter stays: sm90a has
        # instructions that sm90 has not.
        value = re.sub(r"^sm_(?=\d)", "sm", value.lower())
    return value


def _field_value(name: str, value: str) -> Any:
    if name in _SIZES:
        return int(value)
    if name == "backend_framework":
        return next(f for f, text in NAME_OF_FRAMEWORK.items() if text == value)
    return value
