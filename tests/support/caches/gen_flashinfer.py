"""Build or load FlashInfer's nvcc modules; they are compiled for sm_90a and loaded, never launched.

FLASHINFER_WORKSPACE_BASE has the root; FLASHINFER_CUDA_ARCH_LIST, CUDA_HOME, LIBCUDA_STUB (see
libcuda_stub.py) and FLASHINFER_EXTRA_LDFLAGS=-L<the same> must be set too. A hit is a module for
which ninja says that there is no work to do.
"""

from __future__ import annotations

import os
import sys

from cache_jobs import Job, NinjaListener, run_jobs
from libcuda_stub import load_libcuda

os.environ["PATH"] = f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"
load_libcuda()

from flashinfer.jit.activation import gen_act_and_mul_module  # noqa: E402
from flashinfer.jit.page import gen_page_module  # noqa: E402

ninja = NinjaListener()


def module(generate, *args) -> Job:
    def job() -> str:
        generate(*args).build_and_load()
        return ninja.built()

    return job


run_jobs(
    {"silu_and_mul": module(gen_act_and_mul_module, "silu"), "page": module(gen_page_module)},
    some=["silu_and_mul"],
    more={
        f"{name}_and_mul": module(gen_act_and_mul_module, name) for name in ("gelu", "gelu_tanh")
    },
)
