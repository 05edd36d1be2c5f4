"""DeepGEMM's kernels, both generations: `<root>/cache/<name>.<hash>/{kernel.cu, kernel.cubin, …}`.

The newer one (DeepJIT) commits an entry by its `.committed` file; DG_JIT_CACHE_DIR may then list
read-only directories behind the one that it writes to, and what stands in any of them is hit. The
root is the first, unless --root names another. SGLang sets DG_JIT_CACHE_DIR itself, to a directory
of its own, whatever it was before. Loading runs GPU code only.
"""

from __future__ import annotations

from mx_artifacts.bundle.entry import EntryView
from mx_artifacts.bundle.rules import PackRules, first_parts
from mx_artifacts.core.identity import BackendFramework, SourceType
from mx_artifacts.kinds.base import NEVER_PACKED, CacheKind, RootRule
from mx_artifacts.kinds.entry_checks import binary_fault, missing_fault, name_of
from mx_artifacts.kinds.root_rules import (
    below_home,
    below_vllm_cache,
    first_of,
    for_engines,
    from_path_list,
    from_variable,
)
from mx_artifacts.kinds.usage_markers import UsageMarkers

_COMMITTED = ".committed"


def fault_of(entry: EntryView) -> str | None:
    """Refuse a kernel's directory that is not committed, or lacks its code.

    Both generations take a directory that lacks a file for a hit, and then fail. Those of 2.x are
    named `kernel.<name>.<hash>` and have no `meta.json`.
    """
    if entry.path in entry.files or not entry.path.startswith("cache/"):
        return binary_fault(entry)
    older = name_of(entry.path).startswith("kernel.")
    if f"{entry.path}/meta.json" in entry.files or not older:
        if f"{entry.path}/{_COMMITTED}" not in entry.files:
            return f"it has no {_COMMITTED}, so its compiler has not committed it"
        return missing_fault(entry, entry.path, ("kernel.cubin",)) or binary_fault(entry)
    return missing_fault(entry, entry.path, ("kernel.cu", "kernel.cubin")) or binary_fault(entry)


KIND = CacheKind(
    name="deep_gemm",
    source_type=SourceType.DEEP_GEMM_CACHE,
    title="DeepGEMM kernels",
    roots=(
        RootRule(
            "",
            first_of(
                for_engines(
                    {BackendFramework.SGLANG},
                    from_variable("SGLANG_DG_CACHE_DIR"),
                    below_home(".cache", "deep_gemm"),
                ),
                from_path_list("DG_JIT_CACHE_DIR"),
                from_path_list("DJ_JIT_CACHE_DIR"),
                from_variable("DEEP_GEMM_CACHE_DIR"),
                for_engines({BackendFramework.UNKNOWN}, from_variable("SGLANG_DG_CACHE_DIR")),
                below_vllm_cache("deep_gemm"),
            ),
        ),
    ),
    # tmp/ beside cache/ is where entries are compiled.
    pack=PackRules(exclude=(*NEVER_PACKED, "tmp"), entry_of=first_parts(2), fault_of=fault_of),
    identity_fields=("backend_framework", "cuda_version", "gpu_arch"),
    extra_parameters=("deep_gemm_jit_key",),
    # The number of SMs is a template argument of the kernels; a MIG slice has fewer.
    # nvcc's version is in the key, and in the older generation's the include directory's path.
    strict_parameters=("gpu_name", "gpu_sm_count", "nvcc_version", "deep_gemm_include_dir"),
    may_be_absent=frozenset({"nvcc_version", "deep_gemm_include_dir"}),
    atomic_entries=True,  # by rename; DeepJIT never puts an entry where an uncommitted one stands
    loads_libraries=False,
    # DeepJIT moves the marker's mtime on every hit (docs/cache-facts.md, 8).
    signs=UsageMarkers(touched_on_hit=(".committed",)),
)
