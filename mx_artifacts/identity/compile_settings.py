"""Probes of what variables make compilers do, where it ends up in a cache's own key.

ninja compares command lines as they are spelled, so a variable that adds to one is compared as it
is. Architectures are compared as the compiler resolves them: a list that names what the device has
anyway is no difference, and a node without a GPU can compile for those that have one.
"""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Callable, Iterable

from mx_artifacts.identity.facts import Fact, Probe, ProbeContext
from mx_artifacts.kinds.base import ABSENT
from mx_artifacts.node.installed import CannotProbe


def python_include(context: ProbeContext) -> Fact:
    """Python's include directory, which is on command lines whether or not it is needed."""
    return Fact(sysconfig.get_path("include"), "probed: sysconfig include")


def _variables(names: Iterable[str], context: ProbeContext) -> Fact:
    found = {name: value for name in sorted(names) if (value := context.env.get(name))}
    if not found:
        return Fact(ABSENT, "probed: no variable adds to command lines")
    return Fact("; ".join(f"{n}={v}" for n, v in found.items()), ", ".join(found))


# flashinfer/jit/cpp_ext.py and jit/core.py, 0.7.4.
_FLASHINFER = (
    *("CC", "CXX", "FLASHINFER_NVCC", "FLASHINFER_CXX_LAUNCHER", "FLASHINFER_NVCC_LAUNCHER"),
    *("FLASHINFER_EXTRA_CFLAGS", "FLASHINFER_EXTRA_CUDAFLAGS", "FLASHINFER_EXTRA_LDFLAGS"),
    *("FLASHINFER_NVCC_THREADS", "FLASHINFER_JIT_DEBUG", "FLASHINFER_JIT_VERBOSE"),
    *("FLASHINFER_JIT_LINEINFO", "FLASHINFER_CUTE_DSL_STRICT_CACHE_KEY", "NCCL_HOME"),
)
_TVM_FFI = ("CC", "CXX", "TVM_FFI_GPU_BACKEND")  # tvm_ffi/cpp/extension.py, 0.1.15
_CUTE_DSL_PREFIX = "CUTE_DSL_"
# cutlass/base_dsl/env_manager.py, 4.8.1: affects_compile is false; or an identity value by itself.
_NOT_FOR_CUTE_CODE = re.compile(
    r"(LIBS|ARCH|CACHE_DIR|DUMP_DIR|NO_CACHE|DISABLE_FILE_CACHING|JIT_.*|LOG_.*|PRINT_.*|KEEP.*"
    r"|SHOW_STACKTRACE|FILTER_STACKTRACE|WARNINGS_IGNORE|ENABLE_OPTIMIZATION_WARNINGS)"
)


def flashinfer_settings(context: ProbeContext) -> Fact:
    """The variables that add to FlashInfer's command lines."""
    return _variables(_FLASHINFER, context)


def tvm_ffi_settings(context: ProbeContext) -> Fact:
    """The variables that add to TVM-FFI's command lines."""
    return _variables(_TVM_FFI, context)


def cute_dsl_settings(context: ProbeContext) -> Fact:
    """The variables that are in the CuTe DSL's key."""
    ours = (name for name in context.env if name.startswith(_CUTE_DSL_PREFIX))
    kept = (n for n in ours if not _NOT_FOR_CUTE_CODE.fullmatch(n[len(_CUTE_DSL_PREFIX) :]))
    return _variables(kept, context)


# --- architectures --------------------------------------------------------------------------------

_DEVICE_ARCH = re.compile(r"sm_?(\d+)(\d)([a-z]?)")
_LISTED_ARCH = re.compile(r"(\d+)\.(\d)([a-z]?)")
_Suffix = Callable[[int, int], str]


def _no_suffix(major: int, minor: int) -> str:
    return ""


def _cute_suffix(major: int, minor: int) -> str:
    return "a" if major >= 9 else ""


def _flashinfer_suffix(major: int, minor: int) -> str:
    # As flashinfer/compilation_context.py with CUDA 12.9 or newer.
    return "f" if (major, minor) == (12, 0) else _cute_suffix(major, minor)


def _archs(variable: str, form: re.Pattern[str], suffix: _Suffix) -> Probe:
    """Return a probe of the architectures in a variable of this form, else of the device's."""

    def probe(context: ProbeContext) -> Fact:
        listed = context.env.get(variable, "")
        parts, origin = (listed.split(), variable) if listed else ([context.gpu_arch], "gpu_arch")
        pattern = form if listed else _DEVICE_ARCH
        matches = [pattern.fullmatch(part) for part in parts]
        if not listed and not matches[0]:
            return Fact(context.gpu_arch, "as gpu_arch")  # ROCm's, or none
        archs = set()
        for part, match in zip(parts, matches, strict=True):
            if match is None:
                raise CannotProbe(f"{variable} has {part!r}, which is no architecture")
            major, minor = int(match[1]), int(match[2])
            archs.add(f"{major}{minor}{match[3] or suffix(major, minor)}")
        return Fact("_".join(sorted(archs)), origin if listed else f"probed: from {origin}")

    return probe


flashinfer_archs = _archs("FLASHINFER_CUDA_ARCH_LIST", _LISTED_ARCH, _flashinfer_suffix)
tvm_ffi_archs = _archs("TVM_FFI_CUDA_ARCH_LIST", _LISTED_ARCH, _no_suffix)
cute_dsl_arch = _archs("CUTE_DSL_ARCH", _DEVICE_ARCH, _cute_suffix)
