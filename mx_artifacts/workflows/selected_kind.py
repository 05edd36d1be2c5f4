"""A cache kind as one caller wants it: with the roots that the caller states."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from mx_artifacts.node.environment import Environment, environment

if TYPE_CHECKING:
    from mx_artifacts.bundle.rules import PackRules
    from mx_artifacts.core.identity import BackendFramework
    from mx_artifacts.identity.identify import ProbedIdentity, Profile
    from mx_artifacts.kinds.base import CacheKind, RootRule

_ENGINE_FIELD = "backend_framework"
_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class SelectedKind:
    """A kind, those of its roots that the caller states, and the engine that uses it.

    Attributes:
        kind: the kind.
        stated_roots: by root name ("": the primary one).
        engine: decides where the other roots are; UNKNOWN: none; None: the one installed here.
    """

    kind: CacheKind
    stated_roots: Mapping[str, Path] = field(default_factory=dict)
    engine: BackendFramework | None = None

    @property
    def name(self) -> str:
        """The kind's name."""
        return self.kind.name

    @property
    def engine_in_use(self) -> BackendFramework:
        """The engine that the caller names, else the one that is installed here."""
        from mx_artifacts.probes.engines import engine_here

        return engine_here() if self.engine is None else self.engine

    def locate(self, rule: RootRule, env: Environment | None = None) -> tuple[Path, str]:
        """Return where a root of the kind is, and what decided so: --root or an engine's variable.

        Raises:
            ConfigurationError: nothing says where the root is.
        """
        stated = self.stated_roots.get(rule.name)
        if stated is not None:
            return stated, "--root"
        return rule.locate(environment() if env is None else env, self.engine_in_use)

    def is_off(self, rule: RootRule) -> bool:
        """Return whether a root is left out, because it is on only where the caller states it."""
        return bool(rule.required_identity) and rule.name not in self.stated_roots

    def roots(self, env: Environment | None = None) -> dict[str, Path]:
        """Return every root by its name: as stated, else where the kind's engine looks.

        Raises:
            ConfigurationError: nothing says where a root is.
        """
        return {rule.name: self.locate(rule, env)[0] for rule in self.kind.roots}

    def primary_root(self, env: Environment | None = None) -> Path:
        """Return the kind's first root, in whose workspace receipts are; raises as `roots`."""
        return self.locate(self.kind.roots[0], env)[0]

    def roots_to_pack(self) -> list[tuple[Path, PackRules]]:
        """Return every root with the rules by which it is packed; raises as `roots`."""
        return [(root, self.kind.pack) for root in self.roots().values()]

    def probe(
        self,
        model_name: str,
        *,
        overrides: Mapping[str, str] = _NOTHING,
        device_index: int = 0,
        profile: Profile | None = None,
    ) -> ProbedIdentity:
        """Return the kind's identity on this node; the arguments are those of `probe_identity`.

        An engine that the caller names is stated in it.

        Raises:
            ConfigurationError: as `probe_identity`.
        """
        from mx_artifacts.identity.identify import Profile, probe_identity
        from mx_artifacts.probes.engines import ENGINE_NAMES

        stated = dict(overrides)
        if self.engine is not None and _ENGINE_FIELD not in map(str.lower, stated):
            stated[_ENGINE_FIELD] = ENGINE_NAMES[self.engine]
        return probe_identity(
            self.kind,
            model_name=model_name,
            overrides=stated,
            device_index=device_index,
            profile=profile or Profile.STRICT,
            stated_roots=self.stated_roots,
        )


def present_kinds(selected: Iterable[SelectedKind]) -> tuple[SelectedKind, ...]:
    """Return the kinds whose primary root exists and is not empty.

    Raises:
        ConfigurationError: nothing says where a root is.
    """
    return tuple(each for each in selected if _has_entries(each.primary_root()))


def _has_entries(root: Path) -> bool:
    try:
        with os.scandir(root) as entries:
            return any(True for _ in entries)
    except OSError:
        return False
