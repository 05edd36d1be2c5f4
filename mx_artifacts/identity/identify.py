"""The identity of a cache on this node: values that are probed, or stated by the user.

Unknown is not empty (docs/adr/0007): if a field can neither be probed nor was stated, the error
names it. A component that is known to be absent has the value "none" if the kind allows it.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from types import MappingProxyType
from typing import Any

from mx_artifacts import parsing, settings
from mx_artifacts.core.identity import KIND_PARAMETER, SourceIdentity
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.identity.overrides import field_value, read_overrides
from mx_artifacts.identity.values import probe_value
from mx_artifacts.kinds.base import SIZES, CacheKind
from mx_artifacts.node.environment import Environment, environment
from mx_artifacts.node.installed import CannotProbe, ComponentAbsent, torch_build
from mx_artifacts.probes.base import ABSENT, Fact, ProbeContext

STATED = "stated"
_FIELD_NAMES = frozenset(f.name for f in fields(SourceIdentity))
_SETTING_OF_FIELD = {
    "revision": settings.MODEL_REVISION,
    "compile_config_digest": settings.COMPILE_CONFIG_DIGEST,
}
_OF_EVERY_ENGINE = frozenset({*SIZES, "dtype"})
"""Engine fields that the reference's loaders never leave empty."""


class Profile(str, Enum):
    """Which fields an identity has.

    strict     all that a wrong match or a silent recompile could come from
    reference  those that the reference's engine loaders make (docs/protocol.md), to pair with them
    """

    STRICT = "strict"
    REFERENCE = "reference"


@dataclass(frozen=True)
class ProbedIdentity:
    """An identity, where each of its values comes from, and the accelerator family it is for.

    `origins` maps the name of a field or extra parameter to "stated", "probed: …" or the variable
    that has it. `accelerator` is "cuda", "rocm", "xpu", "cpu", or "" where it is not known.
    `unchecked` names what the strict profile, or the user, would have in it and this profile has
    not.
    """

    identity: SourceIdentity
    origins: Mapping[str, str] = field(hash=False)
    accelerator: str
    unchecked: tuple[str, ...] = ()


def probe_identity(
    kind: CacheKind,
    *,
    model_name: str,
    overrides: Mapping[str, str] = MappingProxyType({}),
    env: Environment | None = None,
    device_index: int = 0,
    profile: Profile = Profile.STRICT,
    stated_roots: Collection[str] = (),
) -> ProbedIdentity:
    """Return the identity of `kind`'s cache of `model_name` on this node.

    Made once a process for equal arguments, so that two moments never give two identities.

    Args:
        overrides: values by field or extra parameter; they win over what would be probed. A name
            that the kind does not know is a further extra parameter, which partitions the pool.
        env: the environment whose variables count; default: the process's.
        device_index: the GPU that will run, as CUDA numbers it in this environment.
        stated_roots: names of the kind's roots whose paths the user states, as some are off
            otherwise and need more in the identity.

    Raises:
        ConfigurationError: fields that are neither probed nor stated, all of them named with what
            was tried; or an override that makes no sense; or the reference has no such kind.
    """
    model_name = parsing.parse_or_refuse(parsing.parse_model_name, model_name, "the model's name")
    # Overrides are read before the cache, whose key must not depend on their order.
    stated = tuple(sorted(read_overrides(overrides).items()))
    env = environment() if env is None else env
    here = tuple(sorted(env.items()))
    more = tuple(n for r in kind.roots if r.name in stated_roots for n in r.extra_identity)
    return _probe_once(kind, model_name, stated, here, device_index, profile, more)


@functools.lru_cache(maxsize=64)
def _probe_once(
    kind: CacheKind,
    model_name: str,
    stated: tuple[tuple[str, str], ...],
    env: tuple[tuple[str, str], ...],
    device_index: int,
    profile: Profile,
    more: tuple[str, ...],
) -> ProbedIdentity:
    facts = {name: Fact(value, STATED) for name, value in stated}
    facts |= _engine_settings(kind, facts, dict(env))
    if profile is Profile.REFERENCE:
        return _as_the_reference(kind, model_name, facts, dict(env), device_index)
    names = (*kind.identity_fields, *kind.extra_parameters, *kind.strict_parameters, *more)
    found, unknown = _probe_missing(kind, names, facts, dict(env), device_index)
    _refuse_unknown(kind, unknown)
    facts |= found
    if kind.shares_source_type:
        facts[KIND_PARAMETER] = Fact(kind.name, "cache kind")
    return _probed(kind, model_name, facts)


def _probed(
    kind: CacheKind,
    model_name: str,
    facts: Mapping[str, Fact],
    unchecked: Collection[str] = (),
    accelerator: str | None = None,
) -> ProbedIdentity:
    values: dict[str, Any] = {
        name: field_value(name, fact.value) for name, fact in facts.items() if name in _FIELD_NAMES
    }
    identity = SourceIdentity(
        mx_source_type=kind.source_type,
        model_name=model_name,
        extra_parameters={n: f.value for n, f in sorted(facts.items()) if n not in _FIELD_NAMES},
        **values,
    )
    origins = MappingProxyType({name: fact.origin for name, fact in sorted(facts.items())})
    if accelerator is None:
        accelerator = _accelerator(identity.gpu_arch)
    return ProbedIdentity(identity, origins, accelerator, tuple(unchecked))


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
    kind: CacheKind,
    names: Collection[str],
    facts: Mapping[str, Fact],
    env: Environment,
    device_index: int,
    profile: Profile = Profile.STRICT,
) -> tuple[dict[str, Fact], dict[str, str]]:
    """Return those of `names` that `facts` lack: what was found, and why the others were not."""
    as_the_reference = profile is Profile.REFERENCE
    found: dict[str, Fact] = {}
    unknown: dict[str, str] = {}
    for name in (n for n in names if n not in facts):
        known = {**facts, **found}
        context = ProbeContext(
            env,
            device_index,
            framework=known.get("backend_framework", Fact("", "")).value,
            gpu_arch=known.get("gpu_arch", Fact("", "")).value,
            cpu_build_has_no_gpu_code="gpu_arch" in kind.may_be_absent,
        )
        try:
            found[name] = probe_value(kind, name, context, as_the_reference=as_the_reference)
        except CannotProbe as error:
            if isinstance(error, ComponentAbsent) and name in kind.may_be_absent:
                found[name] = Fact(ABSENT, f"probed: {error}")
            else:
                unknown[name] = str(error)
    return found, unknown


def _refuse_unknown(kind: CacheKind, unknown: Mapping[str, str]) -> None:
    if unknown:
        raise ConfigurationError(
            f"the identity of the {kind.name} cache cannot be determined: "
            + "; ".join(f"{name}: {tried}" for name, tried in unknown.items()),
            hint="state the missing values: " + " ".join(f"--identity {n}=VALUE" for n in unknown),
        )


def _accelerator(gpu_arch: str) -> str:
    for prefix, family in (("sm", "cuda"), ("gfx", "rocm"), (ABSENT, "cpu")):
        if gpu_arch.lower().startswith(prefix):
            return family
    try:
        return torch_build().accelerator
    except CannotProbe:
        return ""


def check_stated_roots(
    kind: CacheKind, identity: SourceIdentity, stated_roots: Collection[str]
) -> None:
    """Check that `identity` has what each root needs that is on only because it was stated.

    Raises:
        ConfigurationError: naming what is missing. The reference's identities never have it.
    """
    for rule in kind.roots:
        missing = [n for n in rule.required_identity if not getattr(identity, n)]
        if rule.name in stated_roots and missing:
            raise ConfigurationError(
                f"root {kind.name}/{rule.name} depends on {', '.join(missing)}, which the "
                "identity does not have; an engine with other values can hang",
                hint="state "
                + " ".join(f"--identity {name}=N" for name in missing)
                + " and use --profile strict, or do not use this root",
            )


# --- as the reference's loaders ------------------------------------------------------------------


def _as_the_reference(
    kind: CacheKind,
    model_name: str,
    facts: Mapping[str, Fact],
    env: Environment,
    device_index: int,
) -> ProbedIdentity:
    """Return the identity that the reference's loader makes of the same node and engine.

    It leaves out what is not there, and extra parameters that it cannot find. A field that it
    has and that cannot be found here is an error all the same.
    """
    if kind.shares_source_type:
        raise ConfigurationError(
            f"the reference has no cache kind {kind.name}", hint="use --profile strict"
        )
    fields_of_loader = (*kind.identity_fields, *kind.engine_fields)
    table = (*fields_of_loader, *kind.extra_parameters)
    kept = {name: fact for name, fact in facts.items() if name in table}
    names = (*kind.identity_fields, *kind.extra_parameters)
    found, unknown = _probe_missing(kind, names, kept, env, device_index, Profile.REFERENCE)
    kept |= found
    not_found = {name for name in unknown if name in kind.extra_parameters}
    missing = {name: tried for name, tried in unknown.items() if name not in not_found}
    if kept.get("backend_framework", Fact("", "")).value == ABSENT:
        missing["backend_framework"] = "no engine is installed, and its loaders are an engine's"
    missing |= {
        name: "the engine's own, which the reference's loaders always have"
        for name in kind.engine_fields
        if name in _OF_EVERY_ENGINE and name not in kept
    }
    _refuse_unknown(kind, missing)
    there = {name: fact for name, fact in kept.items() if fact.value != ABSENT}
    others = [name for name in facts if name not in table and name not in kind.strict_parameters]
    unchecked = (*kind.strict_parameters, *sorted(not_found), *sorted(others))
    accelerator = _accelerator(kept["gpu_arch"].value)
    return _probed(kind, model_name, there, unchecked, accelerator)
