"""Fill or probe FlashInfer's cache of CuTe kernels.

Chosen by FLASHINFER_WORKSPACE_BASE; FLASHINFER_CUDA_ARCH_LIST, CUDA_HOME, CUTE_DSL_ARCH and
LIBCUDA_STUB must be set too. A hit is a kernel that FlashInfer did not have compiled.
"""

from __future__ import annotations

from cache_jobs import Job, run_jobs
from flashinfer_kernels import kernel


def kernels(factors: range) -> dict[str, Job]:
    return {f"factor {factor}": kernel(factor) for factor in factors}


run_jobs(kernels(range(2, 8)), kernels(range(8, 68)))
