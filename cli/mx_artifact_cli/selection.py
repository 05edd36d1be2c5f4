"""Selects the cache kinds that a command works on, with their roots and identities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from mx_artifacts import parsing
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.workflows.selected_kind import SelectedKind, present_kinds

if TYPE_CHECKING:
    from mx_artifact_cli.option_groups import IdentityOptions
    from mx_artifacts.core.identity import BackendFramework
    from mx_artifacts.identity.identify import ProbedIdentity
    from mx_artifacts.kinds.base import CacheKind

ALL = "all"
_NOTHING: Mapping[str, str] = MappingProxyType({})


def select_kinds(
    names: Sequence[str],
    stated_roots: Sequence[tuple[str, Path]],
    stated: Mapping[str, str] = _NOTHING,
    framework: str | None = None,
) -> tuple[SelectedKind, ...]:
    """Return the named kinds, each once, with the roots that --root states for them.

    `stated` has the values of --identity, and `framework` the value of --framework.

    Raises:
        ConfigurationError: a kind or engine is unknown, or --root or --identity name a kind that is
            not selected or a root that does not exist.
    """
    from mx_artifacts.kinds.registry import all_kinds, get_kind

    unique = list(dict.fromkeys(names))
    if ALL in unique:
        if len(unique) > 1:
            raise ConfigurationError(
                f"--kind {ALL} cannot be used with other kinds",
                hint=f"use --kind {ALL} alone, or name each kind",
            )
        kinds = list(all_kinds())
    else:
        kinds = list(dict.fromkeys(map(get_kind, unique)))
    roots: dict[str, dict[str, Path]] = {kind.name: {} for kind in kinds}
    for name, path in stated_roots:
        kind, root = _root_of(name, kinds)
        if roots[kind.name].setdefault(root, path) != path:
            raise ConfigurationError(
                f"--root states two different paths for {kind.root_label(name)!r}",
                hint="state one path",
            )
    for key in stated:
        _check_kind_of(key, kinds)
    return tuple(
        SelectedKind(kind, roots[kind.name], _named_engine(kind, stated, framework))
        for kind in kinds
    )


def _named_engine(
    kind: CacheKind, stated: Mapping[str, str], framework: str | None
) -> BackendFramework | None:
    """Return the engine that the user names for a kind, or None.

    If --framework and --identity name different engines, `identify` raises the error.
    """
    from mx_artifacts.probes.engines import parse_engine

    values = {key.lower(): value for key, value in _stated_for(kind, stated).items()}
    name = framework or values.get("backend_framework")
    if name is None:
        return None
    return parsing.parse_or_refuse(parse_engine, name, "identity value backend_framework")


def _root_of(name: str, kinds: Sequence[CacheKind]) -> tuple[CacheKind, str]:
    if not name:
        if len(kinds) > 1:
            raise ConfigurationError(
                "--root PATH needs a single --kind, but there are several",
                hint="state the kind, too: --root KIND=PATH",
            )
        return kinds[0], ""
    kind_name, _, root = name.partition("/")
    for kind in kinds:
        if kind.name == kind_name and any(rule.name == root for rule in kind.roots):
            return kind, root
    of_kind = [kind for kind in kinds if kind.name == kind_name]
    if root and of_kind:
        further = [f"{kind_name}/{rule.name}" for rule in of_kind[0].roots if rule.name]
        raise ConfigurationError(
            f"--root names {name!r}, but {kind_name} has no such root"
            + (f"; its other roots are {', '.join(further)}" if further else ""),
            hint=f"use --root {kind_name}=PATH for the primary root",
        )
    known = [f"{k.name}/{r.name}" if r.name else k.name for k in kinds for r in k.roots]
    raise ConfigurationError(
        f"--root names {name!r}, but should be one of {', '.join(known)}",
        hint="use --root KIND=PATH or KIND/ROOT=PATH with a kind that --kind names",
    )


def _check_kind_of(key: str, kinds: Sequence[CacheKind]) -> None:
    name, separator, _ = key.partition(".")
    if separator and name not in {kind.name for kind in kinds}:
        raise ConfigurationError(
            f"--identity states {key!r}, but {name!r} is not among the kinds that --kind names "
            f"({', '.join(kind.name for kind in kinds)})",
            hint="use KEY=VALUE for all kinds, or KIND.KEY=VALUE for a kind that --kind names",
        )


def _stated_for(kind: CacheKind, stated: Mapping[str, str]) -> dict[str, str]:
    """Return the values stated for a kind. A value for KIND alone overrides one for all kinds."""
    prefix = f"{kind.name}."
    for_all = {key: value for key, value in stated.items() if "." not in key}
    alone = {k.removeprefix(prefix): v for k, v in stated.items() if k.startswith(prefix)}
    # Names are compared without case, so that only one of the two values is returned.
    own = {key.lower() for key in alone}
    return {**{k: v for k, v in for_all.items() if k.lower() not in own}, **alone}


def require_present(selected: Sequence[SelectedKind]) -> tuple[SelectedKind, ...]:
    """Return those of `selected` whose primary root exists and is not empty.

    Raises:
        ConfigurationError: there is none, or the path of a root is unknown.
    """
    found = present_kinds(selected)
    if not found:
        looked = ", ".join(f"{each.name}: {each.primary_root()}" for each in selected)
        raise ConfigurationError(
            f"no cache was found ({looked})",
            hint="run the engine first, or state the path of a cache with --root KIND=PATH",
        )
    return found


def looked_at(selected: SelectedKind) -> str:
    """Return the path of the primary root and what decided it, such as a variable of an engine."""
    path, decided_by = selected.locate(selected.kind.roots[0])
    return f"{path} ({decided_by})"


def identify(
    selected: SelectedKind, model: str, stated: IdentityOptions, profile: str = "strict"
) -> ProbedIdentity:
    """Return the identity of a kind on this node. Stated values override those that are found.

    Raises:
        ConfigurationError: a field cannot be found out, or two options contradict each other.
    """
    from mx_artifacts.identity.identify import Profile

    overrides = _stated_for(selected.kind, stated.stated)
    for flag, name, value in (
        ("--framework", "backend_framework", stated.framework),
        ("--arch", "gpu_arch", stated.arch),
    ):
        if value is not None and overrides.setdefault(name, value) != value:
            raise ConfigurationError(
                f"{flag} {value} and --identity {name}={overrides[name]} contradict each other",
                hint="state only one of them",
            )
    return selected.probe(
        model, overrides=overrides, device_index=stated.device, profile=Profile(profile)
    )
