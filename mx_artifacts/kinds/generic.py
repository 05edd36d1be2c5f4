"""A directory of compiled files of an unknown kind: `--kind generic --root DIR`.

Every file is an entry of its own, no path is adapted, and only the machine type is compared. The
user states what else must be equal. docs/adr/0013 describes its number on the wire.
"""

from __future__ import annotations

from pathlib import Path

from mx_artifacts.bundle.rules import PackRules
from mx_artifacts.core.identity import AnyBackendFramework, SourceType
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.kinds.base import NEVER_PACKED, CacheKind, RootRule
from mx_artifacts.kinds.entry_checks import binary_fault
from mx_artifacts.node.environment import Environment


def _only_stated(env: Environment, framework: AnyBackendFramework) -> tuple[Path, str]:
    raise ConfigurationError("a generic cache has no default root", hint="state it with --root DIR")


KIND = CacheKind(
    name="generic",
    source_type=SourceType.TORCH_COMPILE_CACHE,
    title="any directory",
    roots=(RootRule("", _only_stated),),
    pack=PackRules(exclude=NEVER_PACKED, keep_mtimes=True, fault_of=binary_fault),
    identity_fields=(),
    strict_parameters=("machine",),
    shares_source_type=True,
)
