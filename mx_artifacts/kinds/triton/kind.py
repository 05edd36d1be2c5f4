"""Triton's kernel cache: `<root>/<BASE32 of a SHA-256>/{<fn>.cubin, …, __grp__<fn>.json}`.

A key directory is committed by its group file, which is written last and lists its children by
absolute path (triton/runtime/cache.py); the fix-up rewrites those. `cuda_utils*.so` and
`<fn>.autotune.json` have key directories of their own, without a group file.
"""

from __future__ import annotations

from mx_artifacts.bundle.entry import EntryView
from mx_artifacts.bundle.rules import PackRules, first_parts
from mx_artifacts.core.identity import SourceType
from mx_artifacts.kinds.base import NEVER_PACKED, CacheKind, RootRule
from mx_artifacts.kinds.root_rules import below_home, first_of, from_variable
from mx_artifacts.kinds.tools import COMPILERS
from mx_artifacts.kinds.triton.compiler import TRITON_VALUES
from mx_artifacts.kinds.triton.group_files import relocate_triton_groups
from mx_artifacts.kinds.triton.key_directories import (
    judge_existing_groups,
    key_directories,
    key_directory_fault,
    loaded_fault,
)


def fault_of(entry: EntryView) -> str | None:
    """Refuse a key directory that is not committed."""
    for directory in key_directories(entry):
        fault = key_directory_fault(entry, directory)
        if fault is not None:
            return fault
    return loaded_fault(entry)


KIND = CacheKind(
    name="triton",
    source_type=SourceType.TRITON_CACHE,
    title="Triton kernels",
    roots=(
        RootRule(
            "",
            first_of(
                from_variable("TRITON_CACHE_DIR"),
                from_variable("TRITON_HOME", ".triton", "cache"),
                below_home(".triton", "cache"),
            ),
        ),
    ),
    pack=PackRules(exclude=NEVER_PACKED, entry_of=first_parts(1), fault_of=fault_of),
    identity_fields=("backend_framework", "cuda_version", "triton_version", "gpu_arch"),
    extra_parameters=("triton_key",),
    # cuda_utils*.so is imported into the process.
    strict_parameters=("machine", "python_abi", "libc"),
    identity_values=TRITON_VALUES,
    tools=COMPILERS,
    fixups=(relocate_triton_groups,),
    existing_entry_rule=judge_existing_groups,
)
