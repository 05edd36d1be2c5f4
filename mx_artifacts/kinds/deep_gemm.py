"""DeepGEMM's kernels, both generations: `<root>/cache/<name>.<hash>/{kernel.cu, kernel.cubin, …}`.

The newer one (DeepJIT) commits an entry by its `.committed` file; DG_JIT_CACHE_DIR may then list
read-only directories behind the one that it writes to, and what is in any of them is hit. The
root is the first, unless --root names another. SGLang sets DG_JIT_CACHE_DIR itself, to a directory
of its own, whatever it was before. Loading runs GPU code only.
"""

from __future__ import annotations

import sys
from hashlib import sha256
from pathlib import Path

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
from mx_artifacts.kinds.tools import NVCC
from mx_artifacts.kinds.usage_markers import UsageMarkers
from mx_artifacts.node.environment import Environment
from mx_artifacts.node.installed import ComponentAbsent, package_directory, run_for_json
from mx_artifacts.probes.base import SAME_IMAGE, SAME_PLACE, Fact, IdentityValue, ProbeContext
from mx_artifacts.probes.programs import NVCC_VERSION

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


# --- identity values -----------------------------------------------------------------------------


def deep_gemm_includes() -> Path:
    """Return the include directory of the package deep_gemm, else of the one inside vLLM."""
    for package, below in (("deep_gemm", "include"), ("vllm", "third_party/deep_gemm/include")):
        try:
            include = package_directory(package) / below
        except ComponentAbsent:
            continue
        if any(include.glob("deep_*")):
            return include
    raise ComponentAbsent("no installed deep_gemm has include/deep_gemm")


def deep_gemm_key() -> str:
    """Return a digest of the headers from which DeepGEMM's kernels are compiled.

    One of its generations does not hash these headers into its own key, so that a stale kernel
    would be used.
    """
    include = deep_gemm_includes()
    headers = sorted(p for d in include.glob("deep_*") for p in d.rglob("*") if p.is_file())
    if not headers:
        raise ComponentAbsent(f"{include} has no headers")
    digest = sha256()
    for header in headers:
        content = sha256(header.read_bytes()).hexdigest()
        digest.update(f"{header.relative_to(include).as_posix()} {content}\n".encode())
    return digest.hexdigest()[:32]


_TIMEOUT_SECONDS = 120.0  # importing it imports torch
_ASK_DEEP_GEMM = (
    "from deep_gemm.jit.compiler import get_deep_gemm_version as key; import json; "
    "print(json.dumps(key()))"
)


def reference_deep_gemm_key(env: Environment) -> str:
    """Return what the reference takes: a function of DeepGEMM 1, which later ones do not have."""
    if not (package_directory("deep_gemm") / "jit" / "compiler.py").is_file():
        raise ComponentAbsent("the installed deep_gemm has no jit/compiler.py")
    argv = (sys.executable, "-c", _ASK_DEEP_GEMM)
    return str(run_for_json(argv, env, timeout_seconds=_TIMEOUT_SECONDS))


def _jit_key(context: ProbeContext) -> Fact:
    return Fact(deep_gemm_key(), "probed: digest of deep_gemm/include")


def _reference_jit_key(context: ProbeContext) -> Fact:
    return Fact(reference_deep_gemm_key(context.env), "probed: deep_gemm.jit.compiler")


def _include_dir(context: ProbeContext) -> Fact:
    """Return the include directory, which DeepGEMM 2 has in its key; DeepJIT has contents only."""
    include = deep_gemm_includes()
    if (include / "deep_jit").is_dir():
        raise ComponentAbsent("DeepJIT's key has no paths")
    return Fact(str(include), "probed: deep_gemm's -I")


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
    identity_values={
        "deep_gemm_jit_key": IdentityValue(_jit_key, SAME_IMAGE, _reference_jit_key),
        "deep_gemm_include_dir": IdentityValue(_include_dir, SAME_PLACE),
        "nvcc_version": NVCC_VERSION,
    },
    tools=(NVCC,),
    atomic_entries=True,  # by rename; DeepJIT never puts an entry where an uncommitted one is
    loads_libraries=False,
    # DeepJIT moves the marker's mtime on every hit (docs/cache-facts.md, 8).
    signs=UsageMarkers(touched_on_hit=(".committed",)),
)
