"""TVM-FFI's inline modules: `<root>/<name>_<hash>/{main.cpp, build.ninja, *.o, <name>.so, …}`.

The directory's name hashes the sources and flags; everything else is ninja's business, so mtimes
and every file are kept (docs/cache-facts.md, 5), and the fix-up adapts ninja's state.
"""

from __future__ import annotations

from mx_artifacts.bundle.entry import EntryView
from mx_artifacts.bundle.rules import PackRules, first_parts
from mx_artifacts.core.identity import SourceType
from mx_artifacts.kinds.base import NEVER_PACKED, CacheKind, RootRule
from mx_artifacts.kinds.entry_checks import binary_fault
from mx_artifacts.kinds.ninja.checks import built_module_fault
from mx_artifacts.kinds.ninja.existing_modules import judge_existing_module
from mx_artifacts.kinds.ninja.relocate import relocate_ninja_modules, relocation_obstacle
from mx_artifacts.kinds.root_rules import below_home, first_of, from_variable
from mx_artifacts.kinds.tools import COMPILERS, NINJA, NVCC
from mx_artifacts.kinds.usage_markers import NINJA_SIGNS
from mx_artifacts.probes.packages import package_path, package_version
from mx_artifacts.probes.programs import NINJA_VALUES
from mx_artifacts.probes.variables import LISTED_ARCH, architectures, variables

TVM_FFI_VALUES = {
    "tvm_ffi_version": package_version("apache-tvm-ffi"),
    "tvm_ffi_path": package_path("tvm_ffi"),
}
"""Also for modules of others that link against it."""
_SETTINGS = ("CC", "CXX", "TVM_FFI_GPU_BACKEND")  # tvm_ffi/cpp/extension.py, 0.1.15


def fault_of(entry: EntryView) -> str | None:
    """Refuse a module that is not built."""
    if entry.path not in entry.files:
        fault = built_module_fault(entry, f"{entry.path}/lock")
        if fault is not None:
            return fault
    return binary_fault(entry)


KIND = CacheKind(
    name="tvm_ffi",
    source_type=SourceType.TVM_FFI_CACHE,
    title="TVM-FFI modules",
    roots=(
        RootRule(
            "",
            first_of(from_variable("TVM_FFI_CACHE_DIR"), below_home(".cache", "tvm-ffi")),
            relocation_obstacle=relocation_obstacle,
        ),
    ),
    pack=PackRules(
        exclude=NEVER_PACKED, keep_mtimes=True, entry_of=first_parts(1), fault_of=fault_of
    ),
    identity_fields=(
        "backend_framework",
        "backend_framework_version",
        "torch_version",
        "cuda_version",
        "gpu_arch",
    ),
    engine_fields=(
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "expert_parallel_size",
        "dtype",
        "quantization",
        "revision",
        "compile_config_digest",
    ),
    extra_parameters=("tvm_ffi_version",),
    strict_parameters=(
        "machine",
        "libc",
        "ninja_version",
        "nvcc_version",
        "cxx_version",
        "cuda_home",
        "tvm_ffi_path",
        "tvm_ffi_archs",
        "tvm_ffi_settings",
    ),
    may_be_absent=frozenset(
        {
            *("backend_framework_version", "nvcc_version", "cxx_version", "cuda_home"),
            "tvm_ffi_path",
        }
    ),
    identity_values={
        **NINJA_VALUES,
        **TVM_FFI_VALUES,
        "tvm_ffi_archs": architectures("TVM_FFI_CUDA_ARCH_LIST", LISTED_ARCH, lambda *_: ""),
        "tvm_ffi_settings": variables(lambda context: _SETTINGS),
    },
    tools=(NINJA, *COMPILERS, NVCC),
    fixups=(relocate_ninja_modules,),
    existing_entry_rule=judge_existing_module,
    signs=NINJA_SIGNS,
)
