"""Which cache kinds a command works on, with which roots and identities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from mx_artifacts import parsing
from mx_artifacts.core.identity import BackendFramework
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.node.environment import environment

if TYPE_CHECKING:
    from mx_artifact_cli.output import Output
    from mx_artifacts.identity.identify import ProbedIdentity
    from mx_artifacts.kinds.base import CacheKind, RootRule

ALL = "all"
_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class SelectedKind:
    """A kind, the engine that uses it, and those of its roots that the user stated.

    Roots are named as the kind names them ("": the primary one). The engine is the one that the
    user names, else the one that is installed here; it decides where the other roots are.
    """

    kind: CacheKind
    stated_roots: Mapping[str, Path] = field(default_factory=dict)
    engine: BackendFramework = BackendFramework.UNKNOWN

    def locate(self, rule: RootRule, environment: Mapping[str, str]) -> tuple[Path, str]:
        """Return where a root of the kind is, and what decided so.

        Raises:
            ConfigurationError: nothing says where it is.
        """
        stated = self.stated_roots.get(rule.name)
        return (stated, "--root") if stated else rule.locate(environment, self.engine)

    def roots(self, environment: Mapping[str, str]) -> dict[str, Path]:
        """Return every root: as stated, else where the kind's engine looks."""
        return {rule.name: self.locate(rule, environment)[0] for rule in self.kind.roots}


def select_kinds(
    names: Sequence[str],
    stated_roots: Sequence[tuple[str, Path]],
    stated: Mapping[str, str] = _NOTHING,
    framework: str | None = None,
) -> tuple[SelectedKind, ...]:
    """Return the named kinds, each once, with the roots that --root states for them.

    `stated` is what --identity states, and `framework` what --framework does.

    Raises:
        ConfigurationError: an unknown kind or engine, a root of a kind or name that is not
            selected, or an identity value of a kind that is not selected.
    """
    from mx_artifacts.kinds.registry import all_kinds, get_kind
    from mx_artifacts.probes.engines import engine_here

    unique = list(dict.fromkeys(names))
    if ALL in unique:
        if len(unique) > 1:
            raise ConfigurationError(
                f"--kind {ALL} does not go with other kinds",
                hint=f"give --kind {ALL}, or name them",
            )
        kinds = list(all_kinds())
    else:
        kinds = list(dict.fromkeys(map(get_kind, unique)))
    roots: dict[str, dict[str, Path]] = {kind.name: {} for kind in kinds}
    for name, path in stated_roots:
        kind, root = _root_of(name, kinds)
        if roots[kind.name].setdefault(root, path) != path:
            raise ConfigurationError(f"--root names two paths for {kind.root_label(name)!r}")
    for key in stated:
        _check_kind_of(key, kinds)
    named = {kind.name: _named_engine(kind, stated, framework) for kind in kinds}
    here = engine_here() if None in named.values() else BackendFramework.UNKNOWN
    engines = {name: here if engine is None else engine for name, engine in named.items()}
    return tuple(SelectedKind(kind, roots[kind.name], engines[kind.name]) for kind in kinds)


def _named_engine(
    kind: CacheKind, stated: Mapping[str, str], framework: str | None
) -> BackendFramework | None:
    """Return the engine that the user names for a kind, or None.

    Where --framework and --identity disagree, `identify` refuses them.
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
                "--root PATH fits a single --kind only", hint="give --root KIND=PATH"
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
            f"--root names {name!r}, but {kind_name} has no further root"
            + (f" {root!r}, only {', '.join(further)}" if further else ""),
            hint=f"give --root {kind_name}=PATH for the cache root itself",
        )
    known = [f"{k.name}/{r.name}" if r.name else k.name for k in kinds for r in k.roots]
    raise ConfigurationError(
        f"--root names {name!r}, but should be one of {', '.join(known)}",
        hint="give --root KIND=PATH or KIND/ROOT=PATH for a kind that --kind names",
    )


def _check_kind_of(key: str, kinds: Sequence[CacheKind]) -> None:
    name, separator, _ = key.partition(".")
    if separator and name not in {kind.name for kind in kinds}:
        raise ConfigurationError(
            f"--identity states {key!r}, but {name!r} is none of the kinds that --kind names "
            f"({', '.join(kind.name for kind in kinds)})",
            hint="give KEY=VALUE for every kind, or KIND.KEY=VALUE for one that --kind names",
        )


def _stated_for(kind: CacheKind, stated: Mapping[str, str]) -> dict[str, str]:
    """Return what is stated for a kind; what is stated for it alone wins."""
    prefix = f"{kind.name}."
    for_all = {key: value for key, value in stated.items() if "." not in key}
    alone = {k.removeprefix(prefix): v for k, v in stated.items() if k.startswith(prefix)}
    # Names are compared without case, so that a value for all is not there beside its own.
    own = {key.lower() for key in alone}
    return {**{k: v for k, v in for_all.items() if k.lower() not in own}, **alone}


def present_of(
    selected: Sequence[SelectedKind], environment: Mapping[str, str]
) -> tuple[SelectedKind, ...]:
    """Return those of `selected` whose primary root exists and is not empty.

    Raises:
        ConfigurationError: there is none.
    """
    primary = {s.kind.name: s.roots(environment)[s.kind.roots[0].name] for s in selected}
    found = tuple(s for s in selected if _has_entries(primary[s.kind.name]))
    if not found:
        looked = ", ".join(f"{kind}: {path}" for kind, path in primary.items())
        raise ConfigurationError(
            f"no cache was found ({looked})",
            hint="run the engine first, or state where a cache lies with --root KIND=PATH",
        )
    return found


def looked_at(selected: SelectedKind) -> str:
    """Say where the primary root is and what decided so, such as an engine's variable."""
    path, decided_by = selected.locate(selected.kind.roots[0], environment())
    return f"{path} ({decided_by})"


def _has_entries(root: Path) -> bool:
    try:
        return any(root.iterdir())
    except OSError:
        return False


def identify(
    selected: SelectedKind,
    model: str,
    stated: Mapping[str, str],
    framework: str | None,
    *,
    arch: str | None = None,
    device: int = 0,
    profile: str = "strict",
) -> ProbedIdentity:
    """Return a kind's identity on this node, what the user states before what is found.

    Raises:
        ConfigurationError: a field cannot be determined, or two options disagree.
    """
    from mx_artifacts.identity.identify import Profile, probe_identity

    overrides = _stated_for(selected.kind, stated)
    for flag, name, value in (
        ("--framework", "backend_framework", framework),
        ("--arch", "gpu_arch", arch),
    ):
        if value is not None and overrides.setdefault(name, value) != value:
            raise ConfigurationError(f"{flag} and --identity {name}=… disagree")
    return probe_identity(
        selected.kind,
        model_name=model,
        overrides=overrides,
        env=environment(),
        device_index=device,
        profile=Profile(profile),
        stated_roots=selected.stated_roots,
    )


def warn_of_unchecked(output: Output, kind: CacheKind, probed: ProbedIdentity) -> None:
    """Say what the identity does not check, if its profile leaves something out."""
    if probed.unchecked:
        output.warn(
            f"{kind.name}: the reference's identity does not check {', '.join(probed.unchecked)}; "
            "a cache that differs in one of these matches all the same"
        )
