"""Build or load FlashInfer's nvcc modules; they are compiled for sm_90a and loaded, never launched.

FLASHINFER_WORKSPACE_BASE has the root; FLASHINFER_CUDA_ARCH_LIST, CUDA_HOME, LIBCUDA_STUB (see
libcuda_stub.py) and FLASHINFER_EXTRA_LDFLAGS=-L<the same> must be set too. A hit is a module for
which ninja says that there is no work to do.
"""

from __future__ import annotations

from cache_jobs import Job, NinjaListener, run_jobs
from libcuda_stub import load_libcuda

load_libcuda()

from flashinfer.jit.activation import gen_act_and_mul_module  # noqa: E402
from flashinfer.jit.norm import gen_norm_module  # noqa: E402
from flashinfer.jit.page import gen_page_module  # noqa: E402

ninja = NinjaListener()


def module(generate, *args) -> Job:
    def job() -> str:
        generate(*args).build_and_load()
        return str(ninja.built())

    return job


def activation(name: str) -> Job:
    return module(gen_act_and_mul_module, name)


run_jobs(
    {"silu_and_mul": activation("silu"), "page": module(gen_page_module)},
    {
        "gelu_and_mul": activation("gelu"),
        "gelu_tanh_and_mul": activation("gelu_tanh"),
        "norm": module(gen_norm_module),
    },
)
