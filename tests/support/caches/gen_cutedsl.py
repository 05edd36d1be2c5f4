"""Fill or probe a CuTe DSL file cache: kernels are compiled for CUTE_DSL_ARCH, launched in vain.

Chosen by CUTE_DSL_CACHE_DIR; LIBCUDA_STUB must be set too. A hit is a kernel that the DSL loaded
from its cache. There is no GPU to launch it on, which is no error of the cache.
"""

from __future__ import annotations

from cache_jobs import Job, run_jobs
from libcuda_stub import load_libcuda

load_libcuda()

import cute_kernels  # noqa: E402
import cutlass  # noqa: E402
import torch  # noqa: E402
from cutlass.base_dsl import compile_backend  # noqa: E402
from cutlass.cute.runtime import from_dlpack  # noqa: E402

loaded: list[bool] = []
load_cache = compile_backend.load_cache_from_path


def load_and_count(*args, **kwargs):
    found = load_cache(*args, **kwargs)
    loaded.append(found is not None)
    return found


compile_backend.load_cache_from_path = load_and_count


def tensor(dtype, *shape):
    return from_dlpack(torch.zeros(shape, dtype=dtype))


def kernel(function, make_arguments) -> Job:
    def job() -> str:
        loaded.clear()
        try:
            function(*make_arguments())  # as a call; cute.compile() does not use the cache
        except Exception as error:
            if not loaded:
                raise
            if "CUDA" not in f"{type(error).__name__} {error}":
                raise
        return "" if loaded == [True] else f"{function.__name__}: found {loaded}"

    return job


def axpy(dtype, factor: int) -> Job:
    def arguments():
        return tensor(dtype, 1024), tensor(dtype, 1024), factor, cutlass.Int32(1024)

    return kernel(cute_kernels.axpy, arguments)


def relu(dtype) -> Job:
    return kernel(cute_kernels.relu2d, lambda: (tensor(dtype, 64, 1024), tensor(dtype, 64, 1024)))


TYPES = {"f32": torch.float32, "i32": torch.int32}


def axpys(factors) -> dict[str, Job]:
    return {f"axpy{f}_{name}": axpy(dtype, f) for name, dtype in TYPES.items() for f in factors}


run_jobs(
    {**axpys(range(2, 12)), **{f"relu_{name}": relu(dtype) for name, dtype in TYPES.items()}},
    axpys(range(12, 212)),
)
