"""Build or load CUDA modules through TVM-FFI's cache; they are loaded, never launched.

Chosen by TVM_FFI_CACHE_DIR; TVM_FFI_CUDA_ARCH_LIST and CUDA_HOME must be set too. A hit is a
module for which ninja says that there is no work to do.
"""

from __future__ import annotations

import tvm_ffi.cpp
from cache_jobs import Job, NinjaListener, run_jobs

SCALE = """
__global__ void kernel(const float* x, float* y, int64_t n) {
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * %d.f;
}
void scale(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  kernel<<<(x.size(0) + 255) / 256, 256>>>(
      (const float*)x.data_ptr(), (float*)y.data_ptr(), x.size(0));
}
"""
ninja = NinjaListener()


def module(factor: int) -> Job:
    def job() -> str:
        tvm_ffi.cpp.load_inline(f"scale{factor}", cuda_sources=SCALE % factor, functions=["scale"])
        return str(ninja.built())

    return job


def modules(factors: range) -> dict[str, Job]:
    return {f"scale{factor}": module(factor) for factor in factors}


run_jobs(modules(range(2, 4)), modules(range(4, 14)))
