"""CuTe kernels as FlashInfer compiles and keeps them, of our own sources (cute_kernels.py)."""

from __future__ import annotations

from cache_jobs import Job
from libcuda_stub import load_libcuda

load_libcuda()

import cute_kernels  # noqa: E402
import cutlass  # noqa: E402
from cutlass import cute  # noqa: E402
from cutlass.cute.runtime import make_fake_compact_tensor  # noqa: E402
from flashinfer.jit.cute_dsl_core import build_and_load_cute_dsl_kernel  # noqa: E402


def kernel(factor: int) -> Job:
    """Return the job of a kernel that is another one for each factor."""

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
            "axpy", f"a{factor}_f32", compile_kernel, extra_key_files=(cute_kernels.__file__,)
        )
        return "".join(compiled)

    return job
