"""FlashInfer's modules: `<root>/<version>/<archs>/cached_ops/<module>/{build.ninja, *.o, *.so, …}`.

ninja decides whether a module is current, by command lines and mtimes to the nanosecond, so mtimes
and every file of a module are kept (docs/cache-facts.md, 4), and the fix-up adapts ninja's state.
The second root is plain JSON of the autotuner: where one rank has it and another has not, an engine
can hang, so all nodes of an engine must install it or none (docs/groups.md). It is off unless its
path is stated, and then the identity must say how the ranks are laid out.
"""

from __future__ import annotations

from mx_artifacts.bundle.entry import EntryView
from mx_artifacts.bundle.rules import PackRules
from mx_artifacts.core.identity import BackendFramework, SourceType
from mx_artifacts.kinds.base import NEVER_PACKED, SIZES, CacheKind, RootRule
from mx_artifacts.kinds.entry_checks import binary_fault, json_fault
from mx_artifacts.kinds.flashinfer.command_lines import FLASHINFER_VALUES
from mx_artifacts.kinds.flashinfer.cute_modules import (
    cute_module_fault,
    is_cute_module,
    match_cute_modules,
)
from mx_artifacts.kinds.ninja.checks import built_module_fault
from mx_artifacts.kinds.ninja.existing_modules import judge_existing_module
from mx_artifacts.kinds.ninja.relocate import relocate_ninja_modules, relocation_obstacle
from mx_artifacts.kinds.root_rules import (
    below_home,
    below_vllm_cache,
    first_of,
    for_engines,
    from_variable,
)
from mx_artifacts.kinds.tools import COMPILERS, NINJA, NVCC
from mx_artifacts.kinds.usage_markers import NINJA_SIGNS

_IN_UNITS = ("cached_ops", "generated")


def entry_of(path: str) -> str:
    """Map a module's file to its directory; downloaded cubins and autotune files are their own.

    Files of one ninja directory must never be mixed from two builds.
    """
    parts = path.split("/")
    return "/".join(parts[:4]) if len(parts) > 3 and parts[2] in _IN_UNITS else path


def merge_entry_of(path: str) -> str:
    """Map a file as `entry_of` does, but each CuTe kernel to itself."""
    parts = path.split("/")
    is_kernel = len(parts) == 5 and parts[2] == "cached_ops" and is_cute_module(parts[3])
    return path if is_kernel else entry_of(path)


def fault_of(entry: EntryView) -> str | None:
    """Refuse a module that is not built, and JSON (of CuTe kernels, of the autotuner) cut short."""
    for path in entry.files:
        if path.endswith(".json"):
            fault = json_fault(entry, path)
            if fault is not None:
                return fault
    return _module_fault(entry) or binary_fault(entry)


def _module_fault(entry: EntryView) -> str | None:
    *above, module = entry.path.split("/")
    if entry.path in entry.files or above[-1:] != ["cached_ops"]:
        return None
    lock = "/".join((*above, "tmp", f"{module}.lock"))
    return cute_module_fault(entry) if is_cute_module(module) else built_module_fault(entry, lock)


KIND = CacheKind(
    name="flashinfer",
    source_type=SourceType.FLASHINFER_CACHE,
    title="FlashInfer modules",
    roots=(
        RootRule(
            "",
            first_of(
                from_variable("FLASHINFER_WORKSPACE_BASE", ".cache", "flashinfer"),
                below_home(".cache", "flashinfer"),
            ),
            relocation_obstacle=relocation_obstacle,
        ),
        RootRule(
            "autotune",
            first_of(
                for_engines(
                    {BackendFramework.VLLM, BackendFramework.UNKNOWN},
                    from_variable("VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR"),
                ),
                from_variable("FLASHINFER_AUTOTUNE_CACHE_DIR"),
                for_engines(
                    {BackendFramework.SGLANG, BackendFramework.UNKNOWN},
                    from_variable("SGLANG_CACHE_DIR", "flashinfer", "autotune"),
                ),
                for_engines(
                    {BackendFramework.SGLANG},
                    below_home(".cache", "sglang", "flashinfer", "autotune"),
                ),
                below_vllm_cache("flashinfer_autotune_cache"),
            ),
            optional=True,
            required_identity=SIZES,
            # FlashInfer compares these too, beside the stack and torch's own cuBLAS and cuDNN.
            extra_identity=("gpu_name", "cudnn_frontend_version"),
        ),
    ),
    # cached_ops/tmp/ holds locks; *.tmp.<pid> are CuTe kernels before they are in place.
    pack=PackRules(
        exclude=(*NEVER_PACKED, "tmp", "*.tmp.*", "flashinfer_jit.log"),
        keep_mtimes=True,
        entry_of=entry_of,
        fault_of=fault_of,
    ),
    identity_fields=("backend_framework", "torch_version", "cuda_version", "gpu_arch"),
    extra_parameters=("flashinfer_version",),
    # Modules link against TVM-FFI in newer FlashInfer; one ninja rebuilds what another built; the
    # command lines that it compares hold the paths. CuTe kernels are compared by their stack.
    strict_parameters=(
        "machine",
        "libc",
        "ninja_version",
        "tvm_ffi_version",
        "nvcc_version",
        "cxx_version",
        "cuda_home",
        "flashinfer_path",
        "tvm_ffi_path",
        "python_include",
        "flashinfer_archs",
        "flashinfer_settings",
        "cute_dsl_stack",
        "cute_dsl_flavor",
        "cute_dsl_arch",
    ),
    may_be_absent=frozenset(
        {
            *("tvm_ffi_version", "nvcc_version", "cxx_version", "cuda_home"),
            *("flashinfer_path", "tvm_ffi_path", "cute_dsl_stack", "cute_dsl_flavor"),
            "cudnn_frontend_version",
        }
    ),
    identity_values=FLASHINFER_VALUES,
    tools=(NINJA, *COMPILERS, NVCC),
    merge_entry_of=merge_entry_of,
    fixups=(match_cute_modules, relocate_ninja_modules),
    existing_entry_rule=judge_existing_module,
    signs=NINJA_SIGNS,
)
