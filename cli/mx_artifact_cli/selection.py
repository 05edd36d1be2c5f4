"""Which cache kinds a command works on, with which roots and identities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mx_artifacts.errors import ConfigurationError

if TYPE_CHECKING:
    from mx_artifacts.kinds.base import CacheKind

ALL = "all"


@dataclass(frozen=True)
class Selected:
    """A kind and those of its roots that the user stated, by root name ("": the primary one)."""

    kind: CacheKind
    stated_roots: Mapping[str, Path] = field(default_factory=dict)

    def roots(self, environment: Mapping[str, str]) -> dict[str, Path]:
        """Return every root: as stated, else where the kind's engine looks."""
        return {
            rule.name: self.stated_roots.get(rule.name) or rule.locate(environment)[0]
            for rule in self.kind.roots
        }


def select_kinds(
    names: Sequence[str], stated_roots: Sequence[tuple[str, Path]]
) -> tuple[Selected, ...]:
    """Return the named kinds, each once, with the roots that --root states for them.

    Raises:
        ConfigurationError: an unknown kind, or a root of a kind or name that is not selected.
    """
    from mx_artifacts.kinds.registry import all_kinds, get_kind

    unique = list(dict.fromkeys(names))
    if ALL in unique:
        if len(unique) > 1:
            raise ConfigurationError(
                f"--kind {ALL} stands beside other kinds", hint=f"give --kind {ALL}, or name them"
            )
        kinds = list(all_kinds())
    else:
        kinds = [get_kind(name) for name in unique]
    roots: dict[str, dict[str, Path]] = {kind.name: {} for kind in kinds}
    for name, path in stated_roots:
        kind, root = _root_of(name, kinds)
        if roots[kind.name].setdefault(root, path) != path:
            raise ConfigurationError(f"--root names two paths for {name or kind.name!r}")
    return tuple(Selected(kind, roots[kind.name]) for kind in kinds)


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
    known = [f"{k.name}/{r.name}" if r.name else k.name for k in kinds for r in k.roots]
    raise ConfigurationError(
        f"--root names {name!r}, but should be one of {', '.join(known)}",
        hint="give --root KIND=PATH or KIND/ROOT=PATH for a kind that --kind names",
    )


def present(selected: Sequence[Selected], environment: Mapping[str, str]) -> tuple[Selected, ...]:
    """Return the kinds whose primary root exists and is not empty."""
    return tuple(s for s in selected if _has_entries(s.roots(environment)[s.kind.roots[0].name]))


def _has_entries(root: Path) -> bool:
    try:
        return any(root.iterdir())
    except OSError:
        return False


def stated_identity(stated: Mapping[str, str], framework: str | None) -> dict[str, str]:
    """Return the identity fields that the user states, --framework among them.

    Raises:
        ConfigurationError: --framework and --identity disagree.
    """
    if framework is None:
        return dict(stated)
    if stated.get("backend_framework", framework) != framework:
        raise ConfigurationError("--framework and --identity backend_framework=… disagree")
    return {**stated, "backend_framework": framework}
