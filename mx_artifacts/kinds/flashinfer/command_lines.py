"""Probes of values on FlashInfer's command lines, which ninja compares, or in its other keys."""

from __future__ import annotations

from collections.abc import Mapping

from mx_artifacts.kinds.cute_dsl.stack import CUTE_KERNEL_VALUES, cute_suffix
from mx_artifacts.kinds.tvm_ffi import TVM_FFI_VALUES
from mx_artifacts.probes.base import SAME_PLACE, IdentityValue
from mx_artifacts.probes.host import python_include
from mx_artifacts.probes.packages import package_path, package_version
from mx_artifacts.probes.programs import NINJA_VALUES
from mx_artifacts.probes.variables import LISTED_ARCH, architectures, variables

# flashinfer/jit/cpp_ext.py and jit/core.py, 0.7.4.
_SETTINGS = (
    *("CC", "CXX", "FLASHINFER_NVCC", "FLASHINFER_CXX_LAUNCHER", "FLASHINFER_NVCC_LAUNCHER"),
    *("FLASHINFER_EXTRA_CFLAGS", "FLASHINFER_EXTRA_CUDAFLAGS", "FLASHINFER_EXTRA_LDFLAGS"),
    *("FLASHINFER_NVCC_THREADS", "FLASHINFER_JIT_DEBUG", "FLASHINFER_JIT_VERBOSE"),
    *("FLASHINFER_JIT_LINEINFO", "FLASHINFER_CUTE_DSL_STRICT_CACHE_KEY", "NCCL_HOME"),
)


def _suffix(major: int, minor: int) -> str:
    # As flashinfer/compilation_context.py with CUDA 12.9 or newer.
    return "f" if (major, minor) == (12, 0) else cute_suffix(major, minor)


FLASHINFER_VALUES: Mapping[str, IdentityValue] = {
    **NINJA_VALUES,
    **TVM_FFI_VALUES,
    **CUTE_KERNEL_VALUES,
    "flashinfer_version": package_version("flashinfer-python"),
    "flashinfer_path": package_path("flashinfer"),
    "flashinfer_archs": architectures("FLASHINFER_CUDA_ARCH_LIST", LISTED_ARCH, _suffix),
    "flashinfer_settings": variables(lambda context: _SETTINGS),
    "python_include": IdentityValue(python_include, SAME_PLACE),
    "cudnn_frontend_version": package_version("nvidia-cudnn-frontend"),
}
