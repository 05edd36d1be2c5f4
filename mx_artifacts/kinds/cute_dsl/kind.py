"""CuTe DSL's file cache: `<root>/cute_dsl_<sha256>.mlir`, each file with its own CRC-32.

Only implicit JIT calls use it; cute.compile() does not. Loading JIT-compiles the file's MLIR.
"""

from __future__ import annotations

from collections.abc import Sequence

from mx_artifacts.bundle.entry import EntryView
from mx_artifacts.bundle.rules import PackRules
from mx_artifacts.core.identity import SourceType
from mx_artifacts.kinds.base import NEVER_PACKED, CacheKind, RootRule
from mx_artifacts.kinds.cute_dsl.stack import CUTE_DSL_VALUES
from mx_artifacts.kinds.entry_checks import empty_fault
from mx_artifacts.kinds.root_rules import below_temporary, first_of, from_variable, user_name
from mx_artifacts.node.environment import Environment

_DIRECTORY = "cutlass_python_cache"


def _default_directory(env: Environment) -> Sequence[str]:
    # As cutlass/base_dsl/cache_helpers.py: without a user's name, no directory of the user.
    name = user_name(env, ("USER", "USERNAME"))
    return (name, _DIRECTORY) if name else (_DIRECTORY,)


def fault_of(entry: EntryView) -> str | None:
    """Refuse a file without content; the others are renamed into place and have a CRC-32."""
    return empty_fault(entry, entry.files)


KIND = CacheKind(
    name="cute_dsl",
    source_type=SourceType.CUTE_DSL_CACHE,
    title="CuTe DSL kernels",
    roots=(
        RootRule(
            "", first_of(from_variable("CUTE_DSL_CACHE_DIR"), below_temporary(_default_directory))
        ),
    ),
    pack=PackRules(exclude=NEVER_PACKED, fault_of=fault_of),
    identity_fields=("backend_framework", "cuda_version", "gpu_arch"),
    extra_parameters=("cutlass_dsl_version",),
    # The key has the path of the DSL's library and those of the kernels' sources. Sources that lie
    # elsewhere than installed packages do are for the user to state.
    strict_parameters=(
        "machine",
        "cute_dsl_libs",
        "cute_dsl_flavor",
        "cute_dsl_arch",
        "cute_dsl_settings",
        "site_packages",
    ),
    identity_values=CUTE_DSL_VALUES,
    may_be_absent=frozenset({"cute_dsl_libs", "cute_dsl_flavor"}),
    loads_libraries=False,
)
