"""Fill or probe FlashInfer's cache of CuTe kernels with kernels of our own (cute_kernels.py).

Chosen by FLASHINFER_WORKSPACE_BASE; FLASHINFER_CUDA_ARCH_LIST, CUDA_HOME, CUTE_DSL_ARCH and
LIBCUDA_STUB must be set too. A hit is a kernel that FlashInfer did not have compiled.
"""

from __future__ import annotations

from cache_jobs import Job, run_jobs
from libcuda_stub import load_libcuda

load_libcuda()

import cute_kernels  # noqa: E402
import cutlass  # noqa: E402
from cutlass import cute  # noqa: E402
from cutlass.cute.runtime import make_fake_compact_tensor  # noqa: E402
from flashinfer.jit.cute_dsl_core import build_and_load_cute_dsl_kernel  # noqa: E402


def kernel(factor: int) -> Job:
    def job() -> str:
        compiled = []

        def compile_kernel():
            compiled.append(f"factor {factor}")
            vector = make_fake_compact_tensor(cutlass.Float32, (1024,))
            return cute.compile(
                *(cute_kernels.axpy, vector, vector, factor, cutlass.Int32(1024)),
                options="--enable-tvm-ffi",
            )

        build_and_load_cute_dsl_kernel(
            "toy_axpy", f"a{factor}_f32", compile_kernel, extra_key_files=(cute_kernels.__file__,)
        )
        return "".join(compiled)

    return job


run_jobs(
    {f"a{factor}": kernel(factor) for factor in range(2, 8)},
    some=["a2", "a3"],
    more={f"a{factor}": kernel(factor) for factor in range(8, 28)},
)
